import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { cli, inFolder } from "../support/run.ts";

const test = suite("check");

const WARNED = "url: /\nrules:\n  - { actor: all, unit: second, rpu: 5, algo: W, name: five }\n";

test("broken rules: file, line, column and what is allowed, code 1", async () => {
  const broken =
    "url: /\nrules:\n  - { actor: nobody, unit: second, rpu: 5 }\n  - { actor: all, unit: day }\n";
  await inFolder({ "rules.yaml": broken }, async (path) => {
    const file = path("rules.yaml");
    const { code, out } = await cli(["check", file]);
    const [first = "", second = "", sum] = out.split("\n");
    assert.ok(first.startsWith(`${file}:3:14: error: rules.0.actor: found "nobody"`), first);
    assert.ok(second.startsWith(`${file}:4:`), second);
    assert.is(sum, "2 errors, 0 warnings");
    assert.is(code, 1);
  });
});

test("warnings give exit code 0, with --strict 1", async () => {
  const { code, out } = await cli(["check", "-"], { stdin: WARNED });
  assert.is(code, 0);
  assert.match(
    out,
    /^stdin:3:5: warning: .* \[double-burst\]\n1 rule for 1 URL: 0 errors, 1 warning\n$/,
  );
  assert.is((await cli(["check", "-", "--strict"], { stdin: WARNED })).code, 1);
});

test("--json: the same for programs", async () => {
  const { code, out } = await cli(["check", "-", "--json"], { stdin: WARNED });
  const { findings, ...counts } = JSON.parse(out);
  assert.is(code, 0);
  assert.equal(counts, { rules: 1, urls: 1, errors: 0, warnings: 1 });
  const { message, ...finding } = findings[0];
  assert.type(message, "string");
  assert.equal(finding, {
    source: "stdin",
    line: 3,
    column: 5,
    level: "warning",
    code: "double-burst",
    rule: "five",
  });
});

test("several files, and actors that the application registers", async () => {
  const tenant = "url: /\nrules: [{ actor: tenant, unit: second, rpu: 5 }]";
  await inFolder({ "a.yaml": tenant, "b.yaml": "[]" }, async (path) => {
    const files = [path("a.yaml"), path("b.yaml")];
    assert.is((await cli(["check", ...files])).code, 1);
    const { code, out } = await cli(["check", ...files, "--actor", "tenant"]);
    assert.equal([code, out], [0, "1 rule for 1 URL: fine\n"]);
  });
});

test("kinds of actors, functions for costs, and what an outage does", async () => {
  const text = `url: /
rules:
  - { actor: { claim: org }, unit: day, rpu: 9, cost: tokens, scope: global, name: a }
  - { actor: all, unit: day, rpu: 9, count: failures, scope: global, name: b }`;
  const flags = ["--redis", "--actor-kind", "claim", "--cost", "tokens"];
  const { code, out } = await cli(["check", ...flags, "-"], { stdin: text });
  assert.is(code, 0);
  assert.match(out, /^2 rules for 1 URL: fine\nwhile Redis is unavailable each instance applies/);
  assert.match(out, /its share of 2 global rules/);
  assert.is((await cli(["check", "-"], { stdin: text })).code, 1);
  const local = await cli(["check", "--redis", "-"], {
    stdin: "url: /\nrules: [{ actor: all, unit: day, rpu: 9 }]",
  });
  assert.is(local.out, "1 rule for 1 URL: fine\n");
});

test("text of a file cannot send control codes to the terminal", async () => {
  const { out } = await cli(["check", "-"], { stdin: 'url: "/\\e[2J"\nrules: []' });
  assert.not.ok(out.includes("\u001b"));
});

test.run();
