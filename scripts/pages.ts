// The tables of bench/RESULTS.md, and the copies of them in other pages:
//
//   <!-- results: bench/keyed: 50 000 keys under each algorithm -->
//   …the table of that section under that title…
//   <!-- results: end -->

import { readdirSync } from "node:fs";
import { join } from "node:path";

/** The tables of each section by their titles: the line in front of a table, or the first cell of its head. */
export type Tables = ReadonlyMap<string, ReadonlyMap<string, string>>;

const COPIES = /^<!-- results: (\S+): (.+) -->\n[\s\S]*?^<!-- results: end -->$/gm;

export function sectionsOf(results: string): [name: string, text: string][] {
  const [, ...sections] = results.split(/^## /m);
  return sections.map((section) => {
    const [name = "", ...lines] = section.split("\n");
    return [name, `${lines.join("\n").trim()}\n`];
  });
}

export function tablesOf(results: string): Tables {
  return new Map(
    sectionsOf(results).map(([name, text]) => {
      const paragraphs = text.split(/\n{2,}/);
      const tables = paragraphs.flatMap((paragraph, i): [string, string][] => {
        const [, head = ""] = /^\| *(.*?) *\|/.exec(paragraph) ?? [];
        if (!paragraph.startsWith("|")) return [];
        return [[head === "" ? (paragraphs[i - 1] ?? "") : head, paragraph.trim()]];
      });
      return [name, new Map(tables)];
    }),
  );
}

/** Returns the page with the current tables in its copies. Throws an Error if one of them does not exist. */
export function withTables(page: string, tables: Tables): string {
  return page.replaceAll(COPIES, (_, section: string, title: string) => {
    const table = tables.get(section)?.get(title);
    if (table === undefined) {
      const known = [...(tables.get(section)?.keys() ?? tables.keys())].join("; ");
      throw new Error(`${section}: no table "${title}" in the results, but: ${known}`);
    }
    return `<!-- results: ${section}: ${title} -->\n${table}\n<!-- results: end -->`;
  });
}

const pagesOf = (folder: string) =>
  readdirSync(folder)
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name));

/** The pages that users read. They state what was measured only in copies of tables of bench/RESULTS.md. */
export const PAGES = [
  "README.md",
  "gateway/README.md",
  "cli/README.md",
  ...["docs", "gateway/docs", "cli/docs"].flatMap(pagesOf),
];
