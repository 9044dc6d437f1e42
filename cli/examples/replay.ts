/**
 * What would these rules have done yesterday? Before rules go into production they are checked and played against the access log of a
 * real day. In this log a hundred clients are modest and one is not.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { accessLog } from "./lib/access-log.ts";

const RULES = `
- url: /
  rules:
    - { name: each client, actor: device, unit: second, rpu: 5, burst: 10 }
- url: /search
  rules:
    - { name: search, actor: all, unit: second, rpu: 10, algo: LB, burst: 20 }
`;

const folder = mkdtempSync(join(tmpdir(), "replay-"));
const rules = join(folder, "rules.yaml");
const log = join(folder, "access.log");

/** Runs the command as \`npx smooth-limiter …\` does. */
function smoothLimiter(...args: string[]): string {
  const command = ["--import", "tsx", "cli/src/index.ts", ...args];
  const { status, stdout, stderr } = spawnSync(process.execPath, command, { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout;
}

try {
  writeFileSync(rules, RULES);
  const paths = ["/", "/article/7", "/search?q=limits"];
  writeFileSync(log, [...accessLog(6000, { perSecond: 50, clients: 100, paths })].join(""));

  console.log("smooth-limiter check rules.yaml");
  console.log(smoothLimiter("check", rules));

  console.log("smooth-limiter replay rules.yaml access.log --top 3 --html report.html");
  const html = join(folder, "report.html");
  console.log(smoothLimiter("replay", rules, log, "--top", "3", "--html", html));

  const { report } = JSON.parse(smoothLimiter("replay", rules, log, "--json"));
  const [client, search] = report.rules;
  assert.equal(report.requests, 6000);
  assert.ok(client.refused > 0, "requests of the greedy client are refused");
  assert.ok(client.mostOfOneActor <= 15, "no client gets more than a burst of 10 and 5 a second");
  assert.ok(search.waited > search.refused, "most searches wait instead of being refused");
} finally {
  rmSync(folder, { recursive: true, force: true });
}
