import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import * as assert from "uvu/assert";
import { entries, exportsOf } from "../support/docs/exports.ts";
import { suite } from "../support/suite.ts";

// docs/api.md has a section for each entry of the package, headed by the name that users import. In
// it each export is in a heading, as code, or in a table whose first column is called "name", alone or
// with its arguments. The members of an export are in any section of an entry that exports it.
const sections = new Map(
  readFileSync("docs/api.md", "utf8")
    .split(/^## /m)
    .slice(1)
    .map((section) => [section.slice(0, section.indexOf("\n")), section]),
);

function documented(section: string): string[] {
  const headings = section.match(/^### .*$/gm) ?? [];
  const tables = [...section.matchAll(/^\| name \|.*\n\|[-|]+\n((?:\|.*\n)*)/gm)];
  const cells = tables.flatMap(([, rows = ""]) => rows.match(/^\| `[^|]*/gm) ?? []);
  return [...headings, ...cells].flatMap((text) =>
    [...text.matchAll(/`(\w+)[(`]/g)].map(([, name = ""]) => name),
  );
}

/** Types that users only pass on: their fields are internal. */
const OPAQUE = /^(\w*Policy|Store|MemoryStore)$/;
/** What other libraries' clients are like: these explain their methods. */
const FOREIGN = /^\w+Subscriber$/;

const api = suite("docs/api.md");

api("api.md has a section for each entry, and besides only the general ones", () => {
  const about = ["Conventions", "What an import costs in a bundle"];
  assert.equal(
    [...sections.keys()].filter((name) => !about.includes(name)),
    [...entries().keys()],
  );
});

/** The code of the sections that may name the members of an export, by its declaration. */
const codes = new Map<string, readonly string[]>();
const exportsByEntry = [...entries()].map(([entry, file]) => {
  const section = sections.get(entry) ?? "";
  const exported = exportsOf(file);
  const prose = section.replaceAll(/^```.*?^```$/gms, "");
  const code = prose.match(/`[^`]+`/g) ?? [];
  for (const { declaredAs } of exported) {
    codes.set(declaredAs, [...(codes.get(declaredAs) ?? []), ...code]);
  }
  return { entry, file, section, exported };
});

for (const { entry, file, section, exported } of exportsByEntry) {
  const names = exported.map(({ name }) => name);

  api(`api.md lists exactly what ${entry} exports`, () => {
    assert.equal(documented(section).toSorted(), names.toSorted());
  });

  api(`api.md names every member that ${entry} declares`, () => {
    const missing = exported.flatMap(({ name, declaredAs, members }) =>
      (OPAQUE.test(name) ? [] : members)
        .filter((member) => !codes.get(declaredAs)?.some((code) => code.match(`\\b${member}\\b`)))
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
