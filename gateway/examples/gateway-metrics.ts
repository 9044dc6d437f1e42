/**
 * What the rules do, for Prometheus: `/metrics` is made of `gateway.stats`, and each refusal is logged
 * with the rules that refused it. Then an operator looks at a client and lifts its block.
 */
import assert from "node:assert/strict";
import { subscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import {
  createGateway,
  type Gateway,
  nodeGateway,
  readRules,
  type VerdictMessage,
} from "smooth-limiter-gateway";

const gateway = await createGateway({
  rules: readRules(`
    - url: /login
      rules:
        - { actor: device, unit: hour, rpu: 3, algo: W, name: login, count: failures, block: 15m }
    - url: /
      except: /metrics
      rules:
        - { actor: device, unit: second, rpu: 50, name: device }
        - { actor: device, unit: second, rpu: 2, name: stricter, mode: shadow }
  `),
});

subscribe("smooth-limiter-gateway:verdict", (message) => {
  const { request, verdict } = message as VerdictMessage;
  if (verdict.allowed) return;
  const rules = verdict.outcomes.filter(({ allowed, rule }) => !allowed && rule.mode === "enforce");
  console.log(`refused: ${request.url} by ${rules.map(({ rule }) => rule.name)}`);
});

/** The text format of Prometheus. */
function metrics({ stats, rules }: Gateway): string {
  const name = "gateway_requests_total";
  const label = (text: string) => text.replace(/["\\]/g, "\\$&");
  const lines = rules.flatMap((rule) =>
    Object.entries(stats[rule.name] ?? {}).map(
      ([result, count]) =>
        `${name}{rule="${label(rule.name)}",mode="${rule.mode}",result="${result}"} ${count}`,
    ),
  );
  const help = `# HELP ${name} Requests that a rule applied to, by result.\n# TYPE ${name} counter`;
  return `${[help, ...lines].join("\n")}\n`;
}

const web = createServer(
  nodeGateway(gateway, (req, res) => {
    if (req.url === "/metrics") {
      res.setHeader("Content-Type", "text/plain; version=0.0.4");
      res.end(metrics(gateway));
      return;
    }
    res.statusCode = req.url === "/login" ? 401 : 200; // each password is wrong
    res.end("done");
  }),
).listen(0);
await once(web, "listening");
const url = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
const ask = async (path: string) => {
  const response = await fetch(url + path);
  return { status: response.status, text: await response.text() };
};

const statuses: number[] = [];
for (let i = 0; i < 5; i++) statuses.push((await ask("/login")).status);
console.log("five wrong passwords:", statuses.join(", "));
assert.deepEqual(statuses, [401, 401, 401, 429, 429]);

const { text } = await ask("/metrics");
console.log(text);
assert.match(text, /rule="login",mode="enforce",result="refused"\} 2\n/);
assert.match(text, /rule="stricter",mode="shadow",result="refused"\} [0-9]+\n/);

// the same client as an operator sees it
const client = {
  method: "POST",
  url: "/login",
  remoteAddress: "127.0.0.1",
  header: () => undefined,
};
const { allowed, retryMs } = await gateway.peek(client);
console.log(`the client may log in: ${allowed}, again in ${Math.round(retryMs / 60_000)} minutes`);
assert.equal(allowed, false);
await gateway.reset({ rule: "login", actor: "127.0.0.1" });
console.log(`after gateway.reset: ${(await gateway.peek(client)).allowed}`);
assert.equal((await ask("/login")).status, 401);

web.close();
await gateway.close();
