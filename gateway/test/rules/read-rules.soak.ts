// Texts of the greatest allowed length must not take a process out of service. `read-rules.test.ts` checks
// the messages on shorter ones.
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { RulesError, readRules } from "../../src/index.ts";

/** Processor time: other work on the machine does not count. */
const cpuMs = () => process.cpuUsage().user / 1000;

const test = suite("long texts of rules");

test("they are refused quickly", () => {
  const start = cpuMs();
  for (const text of [
    "---\n".repeat(130_000),
    "...\n".repeat(130_000),
    `[${",".repeat(520_000)}]`,
    `[${"a,".repeat(260_000)}]`,
    "*".repeat(520_000),
    "|\n".repeat(260_000),
  ]) {
    assert.throws(
      () => readRules(text),
      (error: unknown) => error instanceof RulesError && error.message.split("\n").length <= 20,
    );
  }
  assert.ok(cpuMs() - start < 15_000);
});

test("nine thousand URLs are read, and so are three thousand rules of one", () => {
  const start = cpuMs();
  const entries = Array.from(
    { length: 9000 },
    (_, i) => `- {url: /a${i}, rules: [{actor: all, unit: day, rpu: 1}]}`,
  );
  assert.is(readRules(entries.join("\n")).length, 9000);
  const rules = Array.from(
    { length: 3000 },
    (_, i) => `- {name: r${i}, actor: all, unit: day, rpu: 1}`,
  );
  assert.is(readRules(`url: /\nrules:\n${rules.join("\n")}`).length, 3000);
  assert.ok(cpuMs() - start < 15_000);
});

test.run();
