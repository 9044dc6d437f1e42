/**
 * An API behind the gateway, under load. A greedy client and a modest one use the search. Reports are
 * served at an even pace, so their requests wait. The table shows how many requests of each passed.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import autocannon from "autocannon";
import Table from "cli-table3";
import colors from "picocolors";
import { createGateway, fromHeader, nodeGateway, readRules } from "smooth-limiter-gateway";

const SECONDS = 3;

const rules = `
- url: /
  rules:
    - { actor: all, unit: second, rpu: 500, algo: sliding window }
- url: /search
  rules:
    - { actor: account, unit: second, rpu: 20 }
- url: /reports
  rules:
    - { actor: all, unit: second, rpu: 30, algo: leaky bucket, burst: 20 }
`;

const actors = { account: fromHeader("x-api-key") };
const gateway = await createGateway({
  rules: readRules(rules, { actors: Object.keys(actors) }),
  actors,
});
const server = createServer(nodeGateway(gateway, (_, res) => res.end("done"))).listen(0);
await once(server, "listening");
const { port } = server.address() as AddressInfo;
const url = `http://localhost:${port}`;

console.log(`The rules:\n${colors.dim(rules)}`);
const first = await fetch(`${url}/search`, { headers: { "x-api-key": "visitor" } });
console.log(`GET /search: ${first.status}`);
for (const name of ["ratelimit-policy", "ratelimit"]) {
  console.log(colors.dim(`  ${name}: ${first.headers.get(name)}`));
}

const clients = {
  "greedy, /search": { path: "/search", key: "greedy", rate: 100, connections: 5 },
  "modest, /search": { path: "/search", key: "modest", rate: 5, connections: 1 },
  "three offices, /reports": { path: "/reports", key: "offices", rate: 300, connections: 15 },
};

console.log(`\n${SECONDS} seconds of load`);
const startedAt = performance.now();
const results = await Promise.all(
  Object.entries(clients).map(async ([name, { path, key, rate, connections }]) => {
    const result = await autocannon({
      url: `${url}${path}`,
      connections,
      overallRate: rate,
      duration: SECONDS,
      headers: { "x-api-key": key },
    });
    return { name, passed: result["2xx"], refused: result.non2xx, latency: result.latency };
  }),
);
const seconds = (performance.now() - startedAt) / 1000;
const table = new Table({
  head: ["client", "passed", "refused", "median answer time"],
  style: { head: [], border: [] },
});
for (const { name, passed, refused, latency } of results) {
  table.push([name, colors.green(`${passed}`), colors.red(`${refused}`), `${latency.p50} ms`]);
}
console.log(table.toString());

const greedyAgain = await Promise.all(
  Array.from({ length: 40 }, () =>
    fetch(`${url}/search`, { headers: { "x-api-key": "greedy again" } }),
  ),
);
const refused = greedyAgain.find(({ status }) => status === 429);
assert.ok(refused);
console.log(`A refusal: ${refused.status}, Retry-After ${refused.headers.get("retry-after")}`);
console.log(colors.dim(`  ${await refused.text()}`));

const [greedy, modest, reports] = results;
assert.ok(greedy && modest && reports);
assert.ok(greedy.passed <= 20 + 20 * seconds, `greedy: ${greedy.passed} in ${seconds} s`);
assert.ok(greedy.refused > 0, "requests of the greedy client are refused");
assert.equal(modest.refused, 0, "the greedy client does not affect the modest one");
assert.ok(reports.passed <= 1 + 30 * seconds, `reports: ${reports.passed} in ${seconds} s`);
assert.ok(reports.latency.p50 > 100, "requests for reports wait");

server.close();
server.closeAllConnections();
await gateway.close();
