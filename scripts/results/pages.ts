import { readdirSync } from "node:fs";
import { join } from "node:path";

const pagesOf = (folder: string) =>
  readdirSync(folder)
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name));

/** The pages that users read. They state what was measured only in copies of tables of bench/RESULTS.md. */
export const PAGES = [
  "README.md",
  "gateway/README.md",
  "cli/README.md",
  ...pagesOf("docs"),
  ...pagesOf("gateway/docs"),
  ...pagesOf("cli/docs"),
];
