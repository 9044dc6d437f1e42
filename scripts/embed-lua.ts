// Writes src/stores/redis/lua.gen.ts, which has every .lua file of src as a string without comments and with short names.
//
// - A line `--> name` stays: it is replaced later by the script of that name.
// - Each script is an export of its own, so a bundle contains only those that it uses. The twins of algorithms are also
//   in a table by name, and what other versions need of them in a list.
// - What a twin has only for a limiter's own policies is replaced by marks, and is a table of its own by these marks: for
//   the states of other versions a script needs only the rest.
// - Constants (a line `local NAME = number`, in the script or in transition.lua) are inlined: a Lua function is cheaper to
//   create when it closes over fewer variables.
// - hot.lua becomes a string with the lines that are equal for all twins with the mark `--> hot`, which names the two
//   fields of the twin's state. Where lines differ it has a mark `--> 0`, `--> 1` and so on, and each such twin has the
//   lines that replace these marks. In these lines a mark with the name of a function stands for its definition.
//
//   npm run lua             writes the file
//   npm run lua -- --check  fails if the file is out of date

import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { writeOrCheck } from "./generated.ts";
import { definitionOf, endOf, inlined, normalized, readTwin, withoutTables } from "./inline-lua.ts";
import { minified, shortNames } from "./minify-lua.ts";

const CONSTANT = /^local ([A-Z_]+) = (-?[\d.]+(?:e-?\d+)?)$/;
/** Matches a line with a comment; the first group is the code before it. A mark (`-->`) is not a comment. */
const COMMENT = /^((?:"[^"]*"|(?!--).)*)--(?!>).*$/;
const REGISTERED = /^algorithms\.(\w) = \{/m;
const HOT = /^--> hot (\w+) (\w+)$/;
/** Matches the first line of a function; its name, and what it is: local, or a field of the twin. */
const FUNCTION =
  /^(?:local function (\w+)\(|(?:function algorithm\.)?(\w+)(?:\(| = function\(| = \w+,$))/;
/** The fields of a twin that a script reads only for a limiter's own policies. */
const OWN_FIELDS = "align earliest give_back keep overflows resize settle start".split(" ");
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

/**
 * Replaces what a twin has only for a limiter's own policies by marks, with the functions that are called nowhere else.
 *
 * @returns the other lines with the marks, and the lines for each mark
 */
function withoutOwn(twin: readonly string[]): { rest: string; own: [string, string][] } {
  const isOwn = new Set<number>();
  const isUsed = (name: RegExp, from: number, to: number) =>
    twin.some((line, i) => (i < from || i > to) && !isOwn.has(i) && name.test(line));
  const dropOne = () =>
    twin.some((line, from) => {
      const [, local, field = ""] = FUNCTION.exec(line) ?? [];
      if (isOwn.has(from) || (local === undefined && !OWN_FIELDS.includes(field))) return false;
      const to = line.endsWith(`${field},`) ? from : endOf(twin, from);
      const name = local === undefined ? `\\.${field}\\b` : `(?<![.\\w])${local}\\b(?! =)`;
      if (isUsed(new RegExp(name), from, to)) return false;
      for (let i = from; i <= to; i++) isOwn.add(i);
      return true;
    });
  while (dropOne());
  const rest: string[] = [];
  const own: [string, string][] = [];
  for (const [i, line] of twin.entries()) {
    if (!isOwn.has(i)) {
      rest.push(line);
    } else if (isOwn.has(i - 1)) {
      (own.at(-1) as [string, string])[1] += `\n${line}`;
    } else {
      rest.push(`--> ${own.length}`);
      own.push([String(own.length), line]);
    }
  }
  return { rest: rest.join("\n"), own };
}

const camel = (name: string) => name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());

const isTwin = (file: string) => file.startsWith("algorithms");
const twins = files.filter(isTwin).map((file) => basename(file, ".lua"));
const others = files.filter((file) => !isTwin(file)).map((file) => basename(file, ".lua"));
const isHot = (name: string) => linesOf.get(name)?.some((line) => HOT.test(line));

const shared = others.filter((name) => name !== "hot");
const textOfScript = (name: string) => withConstants(name).join("\n").replace(READ_HERE, "");
const linesOfTwin = new Map(
  twins.map((name) => [name, withoutOwn(textOfScript(name).split("\n"))]),
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
const linesOfScript = new Map([
  ...shared.map((name) => [name, textOfScript(name)] as const),
  ["hot", hot.common],
]);
const names = shortNames([
  ...linesOfScript.values(),
  ...[...linesOfTwin.values()].flatMap(({ rest, own }) => [rest, ...own.map(([, lines]) => lines)]),
  ...[...hotParts.values()].flatMap((parts) => parts.map(([, lines]) => lines)),
]);
const textOf = (lines = "") => JSON.stringify(minified(lines, names));

const scripts = [...linesOfScript].map(
  ([name, lines]) => `export const ${camel(name)} = ${textOf(lines)};`,
);
/** Returns the code under which a twin is registered. */
function codeOf(name: string): string {
  const [, code = ""] = REGISTERED.exec(linesOf.get(name)?.join("\n") ?? "") ?? [];
  return code;
}

const coldTwins = twins.map((name) => `  { ${fieldsOf(name)} },`);
const twinTexts = twins.map((name) => {
  const { rest, own } = linesOfTwin.get(name) as ReturnType<typeof withoutOwn>;
  const lua = `export const ${camel(name)}Lua = ${textOf(rest)};`;
  const hotTable = hotParts.get(name);
  const hot = hotTable === undefined ? "" : `  hot: ${partsOf(hotTable)},\n`;
  const fields = `  ${fieldsOf(name).replaceAll(", ", ",\n  ")},\n  own: ${partsOf(own)},\n${hot}`;
  return `${lua}\nexport const ${camel(name)}: LuaTwin = {\n${fields}};`;
});

/** Returns a table with the lines for each mark. */
function partsOf(parts: readonly (readonly [string, string])[]): string {
  return `{${parts.map(([mark, lines]) => `\n    ${mark}: ${textOf(lines)},`).join("")}\n  }`;
}

function fieldsOf(name: string): string {
  return `name: "${name}", code: "${codeOf(name)}", lua: ${camel(name)}Lua`;
}

const table = twins.map((name) => `  ${/-/.test(name) ? `"${name}": ${camel(name)}` : name},`);
const text = `// Generated from the .lua files by scripts/embed-lua.ts: edit those, then \`npm run lua\`.
import type { LuaTwin } from "./lua-twin.ts";

${[...scripts, ...twinTexts].join("\n")}

/** The twins of all algorithms, by name. */
export const luaTwins: Readonly<Record<string, LuaTwin>> = {
${table.join("\n")}
};

/** What scripts need of all twins for the states of other versions. A bundle may contain these alone. */
export const coldTwins: readonly LuaTwin[] = [
${coldTwins.join("\n")}
];
`;

writeOrCheck("src/stores/redis/lua.gen.ts", text, "npm run lua");
