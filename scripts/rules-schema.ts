// Writes gateway/rules.schema.json, the JSON Schema with which editors check a file of rules.
//
//   npm run schema             writes the file
//   npm run schema -- --check  fails if the file is out of date

import { readFileSync, writeFileSync } from "node:fs";
import { rulesJsonSchema } from "../gateway/src/rules/schema.ts";

const TARGET = "gateway/rules.schema.json";
const text = `${JSON.stringify(rulesJsonSchema(), null, 2)}\n`;

if (!process.argv.includes("--check")) writeFileSync(TARGET, text);
else if (readFileSync(TARGET, "utf8") !== text) {
  console.error(`${TARGET} is out of date: run npm run schema`);
  process.exitCode = 1;
}
