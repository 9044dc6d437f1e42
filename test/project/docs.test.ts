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

const docs = ["docs", "docs/api", "gateway/docs", "gateway/docs/api", "cli/docs"].flatMap(
  (folder) => filesOf(folder, ".md").map((name) => join(folder, name)),
);

const form = suite("the form of migration pages");

for (const page of docs.filter((path) => path.includes("/from-"))) {
  form(`${page} has a table, a before and an after, and says what is not possible`, () => {
    const text = readFileSync(page, "utf8");
    assert.match(text, /^\|---\|---/m);
    assert.match(text, /^(Before|\*\*Before)/m);
    assert.match(text, /^(After|\*\*After)/m);
    assert.match(text, /^## What is not possible/m);
  });
}

form.run();

const links = suite("links");

for (const page of ["README.md", "docs/README.md", "gateway/README.md", "cli/README.md", ...docs]) {
  links(
    `${page} links to the pages that it names, by a title and not by the name of a file`,
    () => {
      const text = readFileSync(page, "utf8").replaceAll(/^```.*?^```$/gms, "");
      assert.equal(text.match(/\[[^\]]*\.md`?\]\(/g) ?? [], []);
      // bench/RESULTS.md and ARCHITECTURE.md are only in the repository
      const withoutTargets = text.replaceAll(/\]\([^)]*\)/g, "]");
      assert.equal(withoutTargets.match(/\bdocs\/[\w-]+\.md\b/g) ?? [], []);
    },
  );
}

links("docs/serverless.md shows the handler that examples/lambda.ts runs", () => {
  const handler = readFileSync("examples/lib/lambda-handler.ts", "utf8");
  assert.ok(readFileSync("docs/serverless.md", "utf8").includes(`\`\`\`ts\n${handler}\`\`\``));
});

links.run();

testPages("pages", [
  "README.md",
  "ARCHITECTURE.md",
  "CONTRIBUTING.md",
  "SECURITY.md",
  "bench/RESULTS.md",
  "gateway/README.md",
  "cli/README.md",
  "docs/README.md",
  "examples/README.md",
  ...docs,
]);
