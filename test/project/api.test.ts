import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import * as assert from "uvu/assert";
import { entries, exportsOf } from "../support/docs/exports.ts";
import { suite } from "../support/suite.ts";

// Each entry of a package has a page in docs/api of its folder, whose title is the name that users import. On it each export
// is in a heading, as code, or in a table whose first column is called "name", alone or with its arguments; what an entry
// exports from another one with `export *` is on the page of that one. The members of an export are on any page of an
// entry that exports it.
const PACKAGES = [".", "gateway"];
const sources = new Map(PACKAGES.flatMap((folder) => [...entries(folder)]));
const pages = new Map(
  PACKAGES.flatMap((folder) => {
    const pageFolder = join(folder, "docs/api");
    return readdirSync(pageFolder).map((file) => {
      const path = join(pageFolder, file);
      const text = readFileSync(path, "utf8");
      return [/^# (.*)$/m.exec(text)?.[1] ?? file, { path, text }] as const;
    });
  }),
);

function documented(page: string): string[] {
  const headings = page.match(/^## .*$/gm) ?? [];
  const tables = [...page.matchAll(/^\| name \|.*\n\|[-|]+\n((?:\|.*\n)*)/gm)];
  const cells = tables.flatMap(([, rows = ""]) => rows.match(/^\| `[^|]*/gm) ?? []);
  return [...headings, ...cells].flatMap((text) =>
    [...text.matchAll(/`(\w+)[(`]/g)].map(([, name = ""]) => name),
  );
}

/** The lines of the blocks that show signatures. */
function signaturesOn(page: string): string[] {
  return [...page.matchAll(/^```ts signature\n(.*?)^```$/gms)].flatMap(([, block = ""]) =>
    block.trimEnd().split("\n"),
  );
}

/** The text of a source in the form of signatures: on one line, without comments, `readonly` and values of defaults. */
function signaturesIn(file: string): string {
  return readFileSync(file, "utf8")
    .replaceAll(/\/\*\*.*?\*\//gs, "")
    .replaceAll(/\s+/g, " ")
    .replaceAll("readonly ", "")
    .replaceAll(/(?<=[(<]) | (?=[)>])/g, "")
    .replaceAll(/,(?=[)>])/g, "")
    .replaceAll(/(\w): ([\w<>| ]+) = [^,)]+(?=[,)])/g, "$1?: $2");
}

/** Types that users only pass on: their fields are internal. */
const OPAQUE = /^(\w*Policy|Store|MemoryStore)$/;
/** What other libraries' objects are like: these explain their members. */
const FOREIGN =
  /^(\w+Subscriber|RedisReader|Express\w+|Fastify(Instance|Request|Reply)|(Hono|Koa)Context|Node(Request|Response)|PacedResponse|UpgradeSocket)$/;

const api = suite("docs/api");

api("each entry has a page, and the index links to it", () => {
  assert.equal([...pages.keys()].toSorted(), [...sources.keys()].toSorted());
  const index = readFileSync("docs/api.md", "utf8");
  const isLinked = (entry: string, path: string) =>
    index.includes(`[\`${entry}\`](${relative("docs", path)})`);
  assert.equal(
    [...pages].filter(([entry, { path }]) => !isLinked(entry, path)),
    [],
  );
});

/** The code of the pages that may name the members of an export, by its declaration. */
const codes = new Map<string, readonly string[]>();
const exportsByEntry = [...sources].map(([entry, file]) => {
  const page = pages.get(entry)?.text ?? "";
  const others = [...sources.values()].filter((source) => source !== file);
  const exported = exportsOf(file, others);
  const prose = page.replaceAll(/^```.*?^```$/gms, "");
  const code = prose.match(/`[^`]+`/g) ?? [];
  for (const { declaredAs } of exported) {
    codes.set(declaredAs, [...(codes.get(declaredAs) ?? []), ...code]);
  }
  return { entry, file, page, exported };
});

for (const { entry, file, page, exported } of exportsByEntry) {
  const names = exported.map(({ name }) => name);

  api(`the page lists exactly what ${entry} exports`, () => {
    assert.equal(documented(page).toSorted(), names.toSorted());
  });

  api(`the page names every member that ${entry} declares`, () => {
    const missing = exported.flatMap(({ name, declaredAs, members }) =>
      (OPAQUE.test(name) || FOREIGN.test(name) ? [] : members)
        .filter((member) => !codes.get(declaredAs)?.some((code) => code.match(`\\b${member}\\b`)))
        .map((member) => `${name}.${member}`),
    );
    assert.equal(missing, []);
  });

  api(`the signatures on the page are those of ${entry}`, () => {
    const texts = new Map(
      exported.map(({ name, declaredAs }) => [name, signaturesIn(declaredAs.split(" ")[0] ?? "")]),
    );
    const wrong = signaturesOn(page).filter((line) => {
      const [, name = "", rest = ""] = /^(?:new )?(\w+)(.*)$/.exec(line) ?? [];
      // a member: "FakeClock.advance(…", a constructor: "new FakeClock(…", or a function
      const declared = rest.startsWith(".")
        ? rest.slice(1)
        : line.replace(/^new \w+/, "constructor");
      return !texts.get(name)?.includes(declared);
    });
    assert.equal(wrong, []);
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
    const all = exportsOf(file).map(({ name }) => name);
    assert.equal(
      values.filter((name) => !all.includes(name)),
      [],
    );
  });
}

api.run();
