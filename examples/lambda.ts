/**
 * A function on AWS Lambda with a limit for each client address, as `lib/lambda-handler.ts` has it. Lambda starts as many
 * instances as it needs. Here each is a process that invokes the handler with the events that it is sent, and all of
 * them share one limit on Redis: a client that calls 12 times gets 5 answers, whichever instances it reaches.
 */
import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { startRedis } from "../test/support/redis/server.ts";
import type { HttpEvent } from "./lib/lambda-handler.ts";

if (process.send === undefined) await callFunction();
else await runInstance();

/** One instance: loads the handler once, and answers one event after the other. */
async function runInstance(): Promise<void> {
  const { handler } = await import("./lib/lambda-handler.ts");
  process.on("message", async (event: HttpEvent) => process.send?.(await handler(event)));
  process.send?.("ready");
}

async function callFunction(): Promise<void> {
  const server = await startRedis();
  const instances = Array.from({ length: 3 }, () =>
    fork(fileURLToPath(import.meta.url), {
      execArgv: ["--import", "tsx"],
      env: { ...process.env, REDIS_URL: server.url },
    }),
  );
  await Promise.all(instances.map((instance) => once(instance, "message")));

  const statuses: Record<string, number[]> = { "192.0.2.1": [], "192.0.2.2": [] };
  console.log("3 instances, 60 requests a minute for each address, 5 at once\n");
  for (const [address, calls] of [
    ["192.0.2.1", 12],
    ["192.0.2.2", 3],
  ] as const) {
    for (let call = 0; call < calls; call++) {
      const at = call % instances.length;
      const { statusCode, headers } = await invoke(instances[at], eventOf(address));
      const later = headers["retry-after"] ? `, come back in ${headers["retry-after"]} s` : "";
      console.log(`  ${address}, instance ${at + 1}: ${statusCode}${later}`);
      statuses[address]?.push(statusCode);
    }
  }
  for (const instance of instances) instance.kill();
  await server.stop();

  const passed = (address: string) => statuses[address]?.filter((status) => status === 200).length;
  // a slow machine may take more than a second for the calls, in which one more may pass
  assert.ok([5, 6, 7].includes(passed("192.0.2.1") ?? 0), "one limit for all instances");
  assert.equal(passed("192.0.2.2"), 3, "each address has its own");
}

/** The part of an event of API Gateway that the handler reads. */
function eventOf(sourceIp: string): HttpEvent {
  return { requestContext: { http: { sourceIp } } };
}

interface Answer {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string>>;
}

async function invoke(instance: ChildProcess | undefined, event: HttpEvent): Promise<Answer> {
  assert.ok(instance);
  const answered = once(instance, "message");
  instance.send(event);
  const [answer] = await answered;
  return answer as Answer;
}
