/** Every server adapter is registered: a new one without a test, a row in the docs or an export is an error here. */
import { readdirSync, readFileSync } from "node:fs";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import * as limits from "../../src/limit.ts";
import { HOSTS, HTTP2_HOSTS } from "../support/http/servers.ts";

const test = suite("registration of hosts");

/** "express": what `expressGateway` and `expressLimit` are for. */
const names = Object.keys(limits).flatMap((name) => /^(\w+)Gateway$/.exec(name)?.[1] ?? []);

test("each adapter has a filter by rules and a limit in one call, in a file of its own", () => {
  assert.ok(names.length >= 6);
  const exported = limits as Readonly<Record<string, unknown>>;
  const files = readdirSync("gateway/src/hosts");
  for (const name of names) {
    assert.type(exported[`${name}Limit`], "function", `${name}Limit`);
    assert.ok(files.includes(`${name}.ts`), `hosts/${name}.ts`);
  }
});

test("each file that makes a server adapter is exported", () => {
  const made = readdirSync("gateway/src/hosts").flatMap((file) => {
    const text = readFileSync(`gateway/src/hosts/${file}`, "utf8");
    return [...text.matchAll(/^export (?:const|function) (\w+)Gateway\b/gm)].map(
      ([, name]) => name,
    );
  });
  // upgrades are events of Node's server, and their entry is that of Node
  assert.equal(made.filter((name) => name !== "upgrade").sort(), [...names].sort());
});

test("all suites for hosts start a server of each adapter", () => {
  const used = readFileSync("gateway/test/support/http/servers.ts", "utf8");
  for (const name of names) {
    for (const end of ["Gateway", "Limit"]) {
      assert.match(
        used,
        new RegExp(`\\b${name}${end}\\(|register\\(${name}${end}\\b`),
        `${name}${end}`,
      );
    }
  }
  assert.ok(Object.keys({ ...HOSTS, ...HTTP2_HOSTS }).length >= names.length);
});

test("the docs have a row for each adapter, by rules and in one call", () => {
  const page = readFileSync("gateway/docs/http.md", "utf8");
  for (const name of names) {
    for (const end of ["Gateway", "Limit"]) {
      assert.match(page, new RegExp(`^\\|.*\\b${name}${end}\\b.*\\|$`, "m"), `${name}${end}`);
    }
  }
});

test.run();
