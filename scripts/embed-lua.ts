// Writes src/stores/redis/lua.gen.ts: every .lua of src as a string, without comments and indentation; a line
// `--> name` stays, to be replaced by the script of that name. Constants (a line `local NAME = number`, here or in
// frame.lua) are put where they are used: a function that a script makes costs the less, the fewer variables it closes over.
//
//   npm run lua             writes it
//   npm run lua -- --check  fails if it is not what it would write

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

const TARGET = "src/stores/redis/lua.gen.ts";
const FRAME = "stores/redis/frame.lua";
const CONSTANT = /^local ([A-Z_]+) = (-?[\d.]+(?:e-?\d+)?)$/;

function linesOf(file: string): string[] {
  return readFileSync(join("src", file), "utf8")
    .split("\n")
    .map((line) => line.replace(/^\s*--(?!>).*$/, "").trim())
    .filter((line) => line !== "");
}

function constantsOf(lines: readonly string[]): [string, string][] {
  return lines.flatMap((line) => {
    const [, name, value] = CONSTANT.exec(line) ?? [];
    if (name === undefined || value === undefined) return [];
    return [[name, value.startsWith("-") ? `(${value})` : value]];
  });
}

const ofFrame = constantsOf(linesOf(FRAME));

const scripts = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".lua"))
  .sort()
  .map((file) => {
    const lines = linesOf(file);
    const constants = new Map([...ofFrame, ...constantsOf(lines)]);
    const texts = lines
      .filter((line) => !CONSTANT.test(line))
      .map((line) => line.replace(/\b[A-Z][A-Z_]+\b/g, (word) => constants.get(word) ?? word));
    return { name: basename(file, ".lua"), lua: `${texts.join("\n")}\n` };
  });

const entries = scripts.map(
  ({ name, lua }) => `  ${JSON.stringify(name)}: ${JSON.stringify(lua)},`,
);
const text = `// Generated from the .lua files by scripts/embed-lua.ts: edit those, then \`npm run lua\`.
export const lua: Readonly<Record<string, string>> = {
${entries.join("\n")}
};
`;

if (!process.argv.includes("--check")) writeFileSync(TARGET, text);
else if (readFileSync(TARGET, "utf8") !== text) {
  console.error(`${TARGET} is not current: npm run lua`);
  process.exitCode = 1;
}
