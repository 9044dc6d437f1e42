import { gcra, KeyedLimiter } from "smooth-limiter";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { fetchLimit } from "../../src/index.ts";

const test = suite("node process");

const property = Object.getOwnPropertyDescriptor(globalThis, "process") ?? {};

test("where each function of `process` throws, a warning does not end the limit", async () => {
  const fail = () => {
    throw new Error("A Node.js API is used which is not supported in the Edge Runtime.");
  };
  const process = { getBuiltinModule: fail, emitWarning: fail };
  Object.defineProperty(globalThis, "process", { value: process, configurable: true });
  try {
    const clients = KeyedLimiter.create(gcra({ limit: 1, periodMs: 60_000 }));
    const handler = fetchLimit(clients, () => new Response("fine"));
    const statuses: number[] = [];
    for (let i = 0; i < 2; i++) {
      // trustedProxies is 0, so this field is a reason for a warning
      const headers = { "x-forwarded-for": "192.0.2.1" };
      statuses.push((await handler(new Request("http://localhost/", { headers }))).status);
    }
    assert.equal(statuses, [200, 429]);
  } finally {
    Object.defineProperty(globalThis, "process", property);
  }
});

test.run();
