// Writes src/stores/redis/lua.gen.ts: every .lua of src as a string, without comments and indentation; a line
// `--> name` stays, to be replaced by the script of that name. Constants (a line `local NAME = number`, here or in
// frame.lua) are put where they are used: a function that a script makes costs the less, the fewer variables it closes over.
// hot.lua becomes a string for each twin that has the mark `--> hot`, which names the two fields of its state.
//
//   npm run lua             writes it
//   npm run lua -- --check  fails if it is not what it would write

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { inlined, readTwin, withoutTables } from "./inline-lua.ts";

const TARGET = "src/stores/redis/lua.gen.ts";
const CONSTANT = /^local ([A-Z_]+) = (-?[\d.]+(?:e-?\d+)?)$/;
const HOT = /^--> hot (\w+) (\w+)$/;

const files = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".lua"))
  .sort();
const linesOf = new Map(files.map((file) => [basename(file, ".lua"), readLines(file)]));
const ofFrame = constantsOf("frame");

function readLines(file: string): string[] {
  return readFileSync(join("src", file), "utf8")
    .split("\n")
    .map((line) => line.replace(/^\s*--(?!>).*$/, "").trim())
    .filter((line) => line !== "");
}

function constantsOf(name: string): [string, string][] {
  return (linesOf.get(name) ?? []).flatMap((line) => {
    const [, constant, value] = CONSTANT.exec(line) ?? [];
    if (constant === undefined || value === undefined) return [];
    return [[constant, value.startsWith("-") ? `(${value})` : value]];
  });
}

function withConstants(name: string): string[] {
  const constants = new Map([...ofFrame, ...constantsOf(name)]);
  return (linesOf.get(name) ?? [])
    .filter((line) => !CONSTANT.test(line))
    .map((line) => line.replace(/\b[A-Z][A-Z_]+\b/g, (word) => constants.get(word) ?? word));
}

/** The lines of the frame from this mark to the next. */
function stepOf(mark: string): string[] {
  const frame = withConstants("frame");
  const from = frame.indexOf(`--> ${mark}`) + 1;
  const length = frame.slice(from).findIndex((line) => line.startsWith("--> "));
  return frame.slice(from, from + length);
}

function hotPathOf(name: string): string[] {
  const lines = withConstants(name);
  const [, ...fields] = HOT.exec(lines.find((line) => HOT.test(line)) ?? "") ?? [];
  const twin = readTwin(lines);
  const path = withConstants("hot").flatMap((line) =>
    /^--> (?:callers|grants)$/.test(line) ? stepOf(line.slice("--> ".length)) : [line],
  );
  return withoutTables(inlined(path, twin), twin, fields);
}

const names = [...linesOf.keys()];
const isHot = (name: string) => linesOf.get(name)?.some((line) => HOT.test(line));
const scripts: [name: string, lines: string[]][] = [
  ...names
    .filter((name) => name !== "hot")
    .map((name): [string, string[]] => [name, withConstants(name)]),
  ...names.filter(isHot).map((name): [string, string[]] => [`${name}:hot`, hotPathOf(name)]),
];

const entries = scripts.map(
  ([name, lines]) => `  ${JSON.stringify(name)}: ${JSON.stringify(`${lines.join("\n")}\n`)},`,
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
