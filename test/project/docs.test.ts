import { readdirSync } from "node:fs";
import { join } from "node:path";
import { testPages } from "../support/docs/pages.ts";

const pages = readdirSync("docs")
  .filter((name) => name.endsWith(".md") && !name.startsWith("from-"))
  .map((name) => join("docs", name));

testPages("docs", pages);
