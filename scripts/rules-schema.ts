// Writes gateway/rules.schema.json, the JSON Schema that editors check a file of rules with.
//
//   npm run schema             writes it
//   npm run schema -- --check  fails if it is not what it would write

import { readFileSync, writeFileSync } from "node:fs";
import { rulesJsonSchema } from "../gateway/src/rules/schema.ts";

const TARGET = "gateway/rules.schema.json";
const text = `${JSON.stringify(rulesJsonSchema(), null, 2)}\n`;

if (!process.argv.includes("--check")) writeFileSync(TARGET, text);
else if (readFileSync(TARGET, "utf8") !== text) {
  console.error(`${TARGET} is not current: npm run schema`);
  process.exitCode = 1;
}
