/** The bound on the actors of all rules together. */
import * as fc from "fast-check";
import { gcra } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { cpuMs } from "../../test/support/cpu.ts";
import { runs, suite } from "../../test/support/suite.ts";
import { createGateway, fromHeader, readRules } from "../src/index.ts";
import { KeyBudget } from "../src/key-budget.ts";
import { request } from "./support/http/request.ts";

const test = suite("keys of all rules together");

const policy = gcra({ limit: 10, periodMs: 86_400_000 });

test("random actors of many rules: never twice maxKeys, and maxKeys once all have had new ones", () => {
  const visit = fc.record({ table: fc.nat(7), actors: fc.integer({ min: 1, max: 300 }) });
  const random = fc.property(fc.array(visit, { maxLength: 20 }), (visits) => {
    const budget = new KeyBudget(200);
    const clock = new FakeClock();
    const tables = Array.from({ length: 8 }, () => budget.create(policy, { clock }));
    let actor = 0;
    const come = (table: number, actors: number) => {
      for (let i = 0; i < actors; i++) tables[table]?.for(`${actor++}`).tryAcquire();
    };
    const size = () => tables.reduce((sum, each) => sum + each.size, 0);
    for (const { table, actors } of visits) {
      come(table, actors);
      assert.ok(size() < 2 * 200, `${size()}`);
    }
    for (let table = 0; table < 8; table++) come(table, 400);
    for (let table = 0; table < 8; table++) come(table, 400);
    assert.ok(size() <= 200, `${size()}`);
    // each has its part
    for (const table of tables) assert.ok(table.size >= 200 / 8 - 1, `${table.size}`);
  });
  void fc.assert(random, { numRuns: runs(100, 4) });
});

test("a rule alone has all keys, and one that is flooded leaves the others their part", async () => {
  const rules = readRules(
    `
- url: /
  rules: [{ actor: account, unit: day, rpu: 1, name: account }]
- url: /login
  rules: [{ actor: user, unit: day, rpu: 1, name: login }]
`,
    { actors: ["account", "user"] },
  );
  const actors = { account: fromHeader("account"), user: fromHeader("user") };
  const gateway = await createGateway({ rules, actors, maxKeys: 100, clock: new FakeClock() });
  const passes = async (path: string, headers: Record<string, string>) =>
    (await gateway.check(request(path, { headers }))).allowed;
  for (let i = 0; i < 90; i++) assert.ok(await passes("/", { account: `${i}` }));
  assert.not.ok(await passes("/", { account: "0" }));
  for (let i = 0; i < 45; i++)
    assert.ok(await passes("/login", { user: `${i}`, account: `${100 + i}` }));
  for (let i = 0; i < 1000; i++) await passes("/", { account: `invented ${i}` });
  for (let i = 0; i < 45; i++) {
    assert.not.ok(await passes("/login", { user: `${i}`, account: `new ${i}` }), `user ${i}`);
  }
  await gateway.close();
});

test("20 000 rules get their tables in linear time", () => {
  const budget = new KeyBudget(100_000);
  const policy = gcra({ limit: 1, periodMs: 1000 });
  const clock = new FakeClock();
  const started = cpuMs();
  const tables = Array.from({ length: 20_000 }, () => budget.create(policy, { clock }));
  const took = cpuMs() - started;
  assert.ok(took < 5000, `${took} ms`);
  assert.is(tables.length, 20_000);
});

test.run();
