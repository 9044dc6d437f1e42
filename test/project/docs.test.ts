import { readdirSync } from "node:fs";
import { join } from "node:path";
import { testPages } from "../support/docs/pages.ts";

const pages = ["docs", "gateway/docs"].flatMap((folder) =>
  readdirSync(folder)
    .filter((name) => name.endsWith(".md") && !name.startsWith("from-"))
    .map((name) => join(folder, name)),
);

testPages("docs", pages);
