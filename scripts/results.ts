// Runs the benches, writes what they print to bench/RESULTS.md, and copies its tables into the pages:
//
//   npm run bench:results                         all, and the faults of scripts/outages.ts: 45 minutes
//   npm run bench:results -- --short              seconds each, without the faults
//   npm run bench:results -- --short keyed pace   those whose path contains one of the words

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { text } from "node:stream/consumers";
import { PAGES, sectionsOf, tablesOf, withTables } from "./pages.ts";

const PAGE = "bench/RESULTS.md";
const args = process.argv.slice(2);
const isPart = args.some((arg) => !arg.startsWith("--"));

/** Sets the lists of verdicts, and blocks, apart. */
function toMarkdown(printed: string): string {
  return printed
    .replace(/^(- .*)\n(?!- )/gm, "$1\n\n")
    .replace(/^((?!- ).+)\n(?=- )/gm, "$1\n\n")
    .replace(/\n{3,}/g, "\n\n")
    .trim();
}

/** The question that a bench answers: the first paragraph of its first comment. */
function questionOf(file: string): string {
  const [, comment = ""] = /\/\*\*([\s\S]*?)\*\//.exec(readFileSync(file, "utf8")) ?? [];
  const [first = ""] = comment
    .replace(/^ *\* ?/gm, "")
    .trim()
    .split("\n\n");
  return first.replace(/\s+/g, " ");
}

const bench = spawn("npm", ["run", "-s", "bench", "--", ...args], {
  stdio: ["ignore", "pipe", "inherit"],
});
bench.stdout.pipe(process.stdout);
const [printed, [code]] = await Promise.all([text(bench.stdout), once(bench, "exit")]);
if (code !== 0) throw new Error(`a bench failed: ${PAGE} stays as it is`);

// each file begins with its path, and ends with how long it took
const [, ...sections] = printed.replace(/^── [\d.]+ s$/gm, "").split(/^── /m);
const written = new Map(isPart ? sectionsOf(readFileSync(PAGE, "utf8")) : []);
for (const section of sections) {
  const [file = "", ...lines] = section.split("\n");
  const body = `${questionOf(file)}\n\n${toMarkdown(lines.join("\n"))}\n`;
  written.set(file.replace(".bench.ts", ""), body);
}
const results = [
  isPart ? introOf(readFileSync(PAGE, "utf8")) : newIntro(),
  ...[...written].sort().map(([name, body]) => `## ${name}\n\n${body}`),
].join("\n");
writeFileSync(PAGE, results);

const tables = tablesOf(results);
for (const page of PAGES) writeFileSync(page, withTables(readFileSync(page, "utf8"), tables));

if (args.length === 0) {
  const { status } = spawnSync("npm", ["run", "-s", "outages", "--", "--write"], {
    stdio: "inherit",
  });
  if (status !== 0)
    throw new Error("npm run outages failed: docs/outage-bounds.md has no new table");
}

function introOf(results: string): string {
  return `${results.slice(0, results.indexOf("## ")).trimEnd()}\n`;
}

function newIntro(): string {
  const redis = spawnSync("redis-server", ["--version"], { encoding: "utf8" }).stdout ?? "";
  const version = /v=(\S+)/.exec(redis)?.[1];
  const machine = [
    `${availableParallelism()} cores`,
    `Node ${process.version}`,
    ...(version === undefined ? [] : [`Redis ${version} on loopback`]),
  ].join(", ");
  const command = ["npm run bench:results", ...(args.length > 0 ? ["--", ...args] : [])].join(" ");
  return `# Results

Written by \`${command}\`: ${machine}.
[README.md](README.md) explains how it is measured. Compare the ratios, not the times: other machines are faster or slower.
`;
}
