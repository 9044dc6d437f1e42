/**
 * Rules in a YAML file guard two URLs: all clients together at "/", each device and each account below "/search". The file changes
 * while the gateway runs: a broken version is refused, and a valid one also counts earlier requests. There is no server here: the
 * example calls `check` for each request, as an adapter for a server would.
 */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import colors from "picocolors";
import { createGateway, fileSource, fromHeader } from "smooth-limiter-gateway";

const rules = (perAccount: number) => `
url: /
rules:
  - { name: all, actor: all, unit: hour, rpu: 20, algo: W }
---
url: /search
rules:
  - { name: device, actor: device, unit: hour, rpu: 5, algo: W }
  - { name: account, actor: account, unit: hour, rpu: ${perAccount}, algo: W, overrides: { gold: { rpu: 9 } } }
`;

const folder = await mkdtemp(join(tmpdir(), "gateway-"));
const file = join(folder, "rules.yaml");
await writeFile(file, rules(2));

const events: string[] = [];
const gateway = await createGateway({
  rules: fileSource(file),
  actors: { account: fromHeader("x-account") },
  onRules: (event) => {
    events.push(event.type);
    const why = event.type === "refused" ? `\n    ${colors.red(String(event.error))}` : "";
    console.log(`  ${colors.cyan(`rules ${event.type}`)}${why.replaceAll(folder, ".")}`);
  },
});

async function ask(url: string, account: string, remoteAddress: string): Promise<boolean> {
  const header = (name: string) => (name === "x-account" ? account : undefined);
  const { allowed, outcomes } = await gateway.check({ method: "GET", url, remoteAddress, header });
  const states = outcomes.map(({ rule, allowed, decision }) => {
    const left = `${rule.name} ${decision.remaining}/${decision.limit}`;
    return allowed ? left : colors.red(left);
  });
  const sign = allowed ? colors.green("passes ") : colors.red("refused");
  console.log(`  ${sign} ${url.padEnd(22)} ${account.padEnd(5)} ${states.join("  ")}`);
  return allowed;
}

/** Writes another version of the file and waits until the gateway has read it. */
async function edit(text: string): Promise<void> {
  const before = events.length;
  await writeFile(file, text);
  while (events.length === before) await sleep(10);
}

const passed: boolean[] = [];
console.log("\nAll rules of all matching URLs apply");
passed.push(await ask("/search?q=tea", "ann", "192.0.2.1"));
passed.push(await ask("/news", "ann", "192.0.2.1"));

console.log("\nAnother spelling of a URL does not avoid its rules");
passed.push(await ask("//SEARCH/./x", "ann", "192.0.2.1"));
passed.push(await ask("/news/..%2fs%65arch", "ann", "192.0.2.1"));

console.log(
  "\nA request that one rule refuses is charged to none; the account gold has its own limit",
);
passed.push(await ask("/search", "gold", "192.0.2.1"));
passed.push(await ask("/search", "gold", "192.0.2.1"));
assert.deepEqual(passed, [true, true, true, false, true, true]);

console.log("\nThe file changes: a broken version is refused, a valid one counts earlier requests");
await edit(rules(-3));
assert.equal(await ask("/search", "ann", "192.0.2.1"), false);
await edit(rules(3));
assert.equal(await ask("/search", "ann", "192.0.2.1"), true);
assert.equal(await ask("/search", "ann", "192.0.2.2"), false);
assert.deepEqual(events, ["applied", "refused", "applied"]);

await gateway.close();
await rm(folder, { recursive: true });
