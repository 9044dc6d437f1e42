import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import * as assert from "uvu/assert";
import { entries, exportsOf } from "../support/docs/exports.ts";
import { suite } from "../support/suite.ts";

// docs/api.md has a section for each entry of the package, headed by the name that users import. In
// it each export is in a heading, as code, or in a table whose first column is called "name".
const sections = new Map(
  readFileSync("docs/api.md", "utf8")
    .split(/^## /m)
    .slice(1)
    .map((section) => [section.slice(0, section.indexOf("\n")), section]),
);

function documented(section: string): string[] {
  const headings = [...section.matchAll(/^### (.*)$/gm)].flatMap(([, heading = ""]) =>
    [...heading.matchAll(/`(\w+)`/g)].map(([, name = ""]) => name),
  );
  const tables = [...section.matchAll(/^\| name \|.*\n\|[-|]+\n((?:\|.*\n)*)/gm)];
  const rows = tables.flatMap(([, rows = ""]) => [...rows.matchAll(/^\| `(\w+)` \|/gm)]);
  return [...headings, ...rows.map(([, name = ""]) => name)];
}

/** What users pass on as it is: the fields are internal. */
const OPAQUE = /^(\w*Policy|Store|MemoryStore)$/;
/** What other libraries' clients are like: these explain their methods. */
const FOREIGN = /^\w+Subscriber$/;

const api = suite("docs/api.md");

api("has a section for each entry of the package, and no other but those about all", () => {
  const about = ["Conventions", "Which entry has what", "What an import costs in a bundle"];
  assert.equal(
    [...sections.keys()].filter((name) => !about.includes(name)),
    [...entries().keys()],
  );
});

for (const [entry, file] of entries()) {
  const section = sections.get(entry) ?? "";
  const exported = exportsOf(file);
  const names = exported.map(({ name }) => name);

  api(`lists exactly what ${entry} exports`, () => {
    assert.equal(documented(section).toSorted(), names.toSorted());
  });

  api(`names every member that ${entry} declares`, () => {
    const missing = exported.flatMap(({ name, members }) =>
      (OPAQUE.test(name) ? [] : members)
        .filter((member) => !new RegExp(`\`[^\`]*\\b${member}\\b[^\`]*\``).test(section))
        .map((member) => `${name}.${member}`),
    );
    assert.equal(missing, []);
  });

  api(`each export of ${entry}, and each member of it, has a doc comment`, () => {
    assert.equal(
      exported.flatMap(({ name, undocumented }) =>
        undocumented.filter((each) => each === name || !(OPAQUE.test(name) || FOREIGN.test(name))),
      ),
      [],
    );
  });

  api(`${entry} exports the values that its source declares`, async () => {
    const values = Object.keys(await import(pathToFileURL(file).href));
    assert.equal(
      values.filter((name) => !names.includes(name)),
      [],
    );
  });
}

api.run();
