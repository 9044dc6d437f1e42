import { readFileSync } from "node:fs";
import * as assert from "uvu/assert";
import { PAGES, tablesOf, withTables } from "../../scripts/pages.ts";
import { suite } from "../support/suite.ts";

const RESULTS = `# Results

## bench/keys

What does a key cost?

10 keys

|  | bytes |
| --- | ---: |
| gcra | 117 B |

- ✔ reached at most 140 B: 117 B

| 20 keys | bytes |
| --- | ---: |
| gcra | 118 B |
`;

const copy = (title: string, table: string) =>
  `before\n<!-- results: bench/keys: ${title} -->\n${table}<!-- results: end -->\nafter\n`;

const copies = suite("copies of results in pages");

copies("a copy gets the table of its section and title, and nothing else changes", () => {
  const tables = tablesOf(RESULTS);
  assert.is(
    withTables(copy("10 keys", ""), tables),
    copy("10 keys", "|  | bytes |\n| --- | ---: |\n| gcra | 117 B |\n"),
  );
  assert.is(
    withTables(copy("20 keys", "| old |\n"), tables),
    copy("20 keys", "| 20 keys | bytes |\n| --- | ---: |\n| gcra | 118 B |\n"),
  );
});

copies("a table that does not exist is an error that names those that do", () => {
  assert.throws(
    () => withTables(copy("30 keys", ""), tablesOf(RESULTS)),
    /bench\/keys: no table "30 keys" in the results, but: 10 keys; 20 keys/,
  );
});

copies.run();

/** What only a measurement states: a time below a microsecond or so, a ratio with decimals, the machine that it ran on. */
const MEASURED =
  /\d ?(?:ns|µs)\b|\d\.\d+ ×|\bmeasured (?:by|with|on|in)\b|\bour machines?\b|\b(?:busy|idle) (?:machine|cores)\b/i;

/** The text without blocks of code and without the parts that a command writes. */
function prose(page: string): string {
  return page
    .replace(/^```[\s\S]*?^```$/gm, "")
    .replace(/^<!-- (results|outages|scale): [\s\S]*?^<!-- \1: end -->$/gm, "");
}

const pages = suite("pages state results");
const tables = tablesOf(readFileSync("bench/RESULTS.md", "utf8"));

for (const page of PAGES) {
  const text = readFileSync(page, "utf8");

  pages(`${page} has the tables of bench/RESULTS.md (npm run bench:results writes them)`, () => {
    assert.is(text, withTables(text, tables));
  });

  pages(`${page} states what was measured only in such tables`, () => {
    const lines = prose(text).split("\n");
    assert.equal(
      lines.filter((line) => MEASURED.test(line)),
      [],
    );
  });
}

pages.run();
