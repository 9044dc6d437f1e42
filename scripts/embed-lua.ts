// Writes src/stores/redis/lua.gen.ts, which has every .lua file of src as a string without comments and with short names.
//
// - A line `--> name` stays: it is replaced later by the script of that name.
// - Each script is an export of its own, so a bundle contains only those that it uses. The twins of algorithms are also
//   in a table by name, and without their hot paths in a list.
// - Constants (a line `local NAME = number`, in the script or in transition.lua) are inlined: a Lua function is cheaper to
//   create when it closes over fewer variables.
// - hot.lua becomes a string with the lines that are equal for all twins with the mark `--> hot`, which names the two
//   fields of the twin's state. Where lines differ it has a mark `--> 0`, `--> 1` and so on, and each such twin has the
//   lines that replace these marks. In these lines a mark with the name of a function stands for its definition.
//
//   npm run lua             writes the file
//   npm run lua -- --check  fails if the file is out of date

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { definitionOf, inlined, normalized, readTwin, withoutTables } from "./inline-lua.ts";
import { minified, shortNames } from "./minify-lua.ts";

const TARGET = "src/stores/redis/lua.gen.ts";
const CONSTANT = /^local ([A-Z_]+) = (-?[\d.]+(?:e-?\d+)?)$/;
/** Matches a line with a comment; the first group is the code before it. A mark (`-->`) is not a comment. */
const COMMENT = /^((?:"[^"]*"|(?!--).)*)--(?!>).*$/;
const REGISTERED = /^algorithms\.(\w) = \{/m;
const HOT = /^--> hot (\w+) (\w+)$/;
/** Marks that only this script reads. */
const READ_HERE = /^--> (?:hot \w+ \w+|callers|numbers|grants|granted)\n/gm;

const files = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".lua"))
  .sort();
const linesOf = new Map(files.map((file) => [basename(file, ".lua"), readLines(file)]));
const ofTransition = constantsOf("transition");

function readLines(file: string): string[] {
  return readFileSync(join("src", file), "utf8")
    .split("\n")
    .map((line) => line.replace(COMMENT, "$1").trim())
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
  const constants = new Map([...ofTransition, ...constantsOf(name)]);
  return (linesOf.get(name) ?? [])
    .filter((line) => !CONSTANT.test(line))
    .map((line) => line.replace(/\b[A-Z][A-Z_]+\b/g, (word) => constants.get(word) ?? word));
}

/** Returns the lines of the transition from this mark to the next. */
function stepOf(mark: string): string[] {
  const transition = withConstants("transition");
  const from = transition.indexOf(`--> ${mark}`) + 1;
  const length = transition.slice(from).findIndex((line) => line.startsWith("--> "));
  return transition.slice(from, from + length);
}

/** Returns for each line of the hot path what it becomes with this twin, and the definitions that it has marks for. */
function hotPathOf(name: string) {
  const lines = withConstants(name);
  const [, ...fields] = HOT.exec(lines.find((line) => HOT.test(line)) ?? "") ?? [];
  const twin = readTwin(lines);
  const path = withConstants("hot").flatMap((line) =>
    /^--> (?:callers|grants)$/.test(line) ? stepOf(line.slice("--> ".length)) : [line],
  );
  const inline = (script: readonly string[]) => withoutTables(script, twin, fields).join("\n");
  const inlinedLines = normalized(path).map((line) => inline(inlined([line], twin)));
  const marked = new Set(inlinedLines.join("\n").match(/(?<=^--> )\w+$/gm));
  const functions = [...marked].filter((mark) => twin.functions.has(mark));
  return {
    lines: inlinedLines,
    definitions: functions.map((each) => [each, inline(definitionOf(each, twin))] as const),
  };
}

/** Divides the hot paths of twins into the lines that are equal for all of them, and the others of each. */
function divided(paths: ReadonlyMap<string, readonly string[]>) {
  const [first = [], ...others] = paths.values();
  const common: string[] = [];
  const runs: number[][] = [];
  let run: number[] | undefined;
  for (const [i, line] of first.entries()) {
    if (others.every((path) => path[i] === line)) {
      common.push(line);
      run = undefined;
    } else if (run === undefined) {
      common.push(`--> ${runs.length}`);
      run = [i];
      runs.push(run);
    } else {
      run.push(i);
    }
  }
  const partsOf = (path: readonly string[]) =>
    runs.map((indices) => indices.map((i) => path[i]).join("\n"));
  const parts = new Map([...paths].map(([name, path]) => [name, partsOf(path)]));
  return { common: common.join("\n"), parts };
}

const camel = (name: string) => name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());

const isTwin = (file: string) => file.startsWith("algorithms");
const twins = files.filter(isTwin).map((file) => basename(file, ".lua"));
const others = files.filter((file) => !isTwin(file)).map((file) => basename(file, ".lua"));
const isHot = (name: string) => linesOf.get(name)?.some((line) => HOT.test(line));

const shared = others.filter((name) => name !== "hot");
const linesOfScript = new Map(
  [...shared, ...twins].map((name) => [
    name,
    withConstants(name).join("\n").replace(READ_HERE, ""),
  ]),
);
const hotPaths = new Map(twins.filter(isHot).map((name) => [name, hotPathOf(name)]));
const hot = divided(new Map([...hotPaths].map(([name, { lines }]) => [name, lines])));
/** For each such twin: the lines for each mark. */
const hotParts = new Map(
  [...hotPaths].map(([name, { definitions }]) => {
    const numbered = (hot.parts.get(name) ?? []).map((lines, i) => [String(i), lines] as const);
    return [name, [...numbered, ...definitions]];
  }),
);
const names = shortNames([
  ...linesOfScript.values(),
  hot.common,
  ...[...hotParts.values()].flatMap((parts) => parts.map(([, lines]) => lines)),
]);
const textOf = (lines = "") => JSON.stringify(minified(lines, names));

const scripts = [...shared.map((name) => [name, linesOfScript.get(name)]), ["hot", hot.common]].map(
  ([name = "", lines]) => `export const ${camel(name)} = ${textOf(lines)};`,
);
/** Returns the code under which a twin is registered. */
function codeOf(name: string): string {
  const [, code = ""] = REGISTERED.exec(linesOf.get(name)?.join("\n") ?? "") ?? [];
  return code;
}

const coldTwins = twins.map((name) => `  { ${fieldsOf(name)} },`);
const twinTexts = twins.map((name) => {
  const lua = `export const ${camel(name)}Lua = ${textOf(linesOfScript.get(name))};`;
  const parts = hotParts.get(name)?.map(([mark, lines]) => `\n  ${mark}: ${textOf(lines)},`);
  if (parts === undefined) return `${lua}\n${twinOf(name, fieldsOf(name))}`;
  const hot = `export const ${camel(name)}Hot = {${parts.join("")}\n};`;
  return `${lua}\n${hot}\n${twinOf(name, `${fieldsOf(name)}, hot: ${camel(name)}Hot`)}`;
});

function fieldsOf(name: string): string {
  return `name: "${name}", code: "${codeOf(name)}", lua: ${camel(name)}Lua`;
}

function twinOf(name: string, fields: string): string {
  return `export const ${camel(name)}: LuaTwin = {\n  ${fields.replaceAll(", ", ",\n  ")},\n};`;
}

const table = twins.map((name) => `  ${/-/.test(name) ? `"${name}": ${camel(name)}` : name},`);
const text = `// Generated from the .lua files by scripts/embed-lua.ts: edit those, then \`npm run lua\`.
import type { LuaTwin } from "./lua-twin.ts";

${[...scripts, ...twinTexts].join("\n")}

/** The twins of all algorithms, by name. */
export const luaTwins: Readonly<Record<string, LuaTwin>> = {
${table.join("\n")}
};

/** The twins of all algorithms without their hot paths. A bundle may contain these alone. */
export const coldTwins: readonly LuaTwin[] = [
${coldTwins.join("\n")}
];
`;

if (!process.argv.includes("--check")) writeFileSync(TARGET, text);
else if (readFileSync(TARGET, "utf8") !== text) {
  console.error(`${TARGET} is out of date: run npm run lua`);
  process.exitCode = 1;
}
