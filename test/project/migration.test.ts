import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as assert from "uvu/assert";
import { testPages } from "../support/docs/pages.ts";
import { suite } from "../support/suite.ts";

const pages = ["docs", "gateway/docs"].flatMap((folder) =>
  readdirSync(folder)
    .filter((name) => name.startsWith("from-"))
    .map((name) => join(folder, name)),
);

const form = suite("the form of migration pages");

for (const page of pages) {
  form(`${page} has a table, a before and an after, and says what is not possible`, () => {
    const text = readFileSync(page, "utf8");
    assert.match(text, /^\|---\|---/m);
    assert.match(text, /^(Before|\*\*Before)/m);
    assert.match(text, /^(After|\*\*After)/m);
    assert.match(text, /^## What is not possible/m);
  });
}

form.run();

testPages("migration pages", pages);
