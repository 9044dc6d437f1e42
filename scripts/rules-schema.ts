// Writes gateway/rules.schema.json, the JSON Schema with which editors check a file of rules.
//
//   npm run schema             writes the file
//   npm run schema -- --check  fails if the file is out of date

import { rulesJsonSchema } from "../gateway/src/rules/schema.ts";
import { writeOrCheck } from "./generated.ts";

const text = `${JSON.stringify(rulesJsonSchema(), null, 2)}\n`;
writeOrCheck("gateway/rules.schema.json", text, "npm run schema");
