import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as assert from "uvu/assert";
import { testPages } from "../support/docs/pages.ts";
import { suite } from "../support/suite.ts";

const filesOf = (folder: string, end: string) =>
  readdirSync(folder).filter((name) => name.endsWith(end) && name !== "README.md");

const indexes = suite("the indexes");

for (const [folder, end] of [
  ["docs", ".md"],
  ["examples", ".ts"],
] as const) {
  indexes(`${folder}/README.md links to every file of its folder`, () => {
    const text = readFileSync(join(folder, "README.md"), "utf8");
    assert.equal(
      filesOf(folder, end).filter((name) => !text.includes(`](${name}`)),
      [],
    );
  });
}

indexes.run();

const pages = ["docs", "gateway/docs"].flatMap((folder) =>
  filesOf(folder, ".md")
    .filter((name) => !name.startsWith("from-"))
    .map((name) => join(folder, name)),
);

testPages("docs", [...pages, "docs/README.md", "examples/README.md"]);
