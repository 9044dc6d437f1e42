import { once } from "node:events";
import type { AddressInfo } from "node:net";
import express, { type Request } from "express";
import { gcra, KeyedLimiter } from "smooth-limiter";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { expressLimit, type HostLimitOptions } from "../../src/index.ts";

const test = suite("expressLimit");

declare global {
  namespace Express {
    interface Request {
      tenant?: string | undefined;
    }
  }
}

/** How many requests of each tenant, and of all from one address, pass. */
async function passing(limit: ReturnType<typeof expressLimit>): Promise<readonly number[]> {
  const app = express();
  app.use((req, _, next) => {
    req.tenant = req.get("x-tenant");
    next();
  });
  app.get("/:id", limit, (_, res) => void res.end());
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/7`;
  const counts: number[] = [];
  for (const tenant of ["ann", "bob"]) {
    let passed = 0;
    for (let i = 0; i < 3; i++) {
      const { status } = await fetch(url, { headers: { "x-tenant": tenant } });
      if (status === 200) passed += 1;
    }
    counts.push(passed);
  }
  server.close();
  server.closeAllConnections();
  return counts;
}

const users = () => KeyedLimiter.create(gcra({ limit: 2, periodMs: 1e9 }));

test("functions know the requests of Express without a type, and what the application added", async () => {
  const apart = [2, 2];
  const together = [2, 0];
  assert.equal(await passing(expressLimit(users(), { key: (req) => req.ip })), together);
  assert.equal(await passing(expressLimit(users(), { key: (req) => req.params.id })), together);
  assert.equal(await passing(expressLimit(users(), { key: (req) => req.tenant })), apart);
  assert.equal(await passing(expressLimit(users(), { key: (req) => req.get("x-tenant") })), apart);
  const typed = expressLimit(users(), { key: (req: Request) => req.header("x-tenant") });
  assert.equal(await passing(typed), apart);
  const skipping = expressLimit(users(), {
    key: (req) => req.hostname,
    skip: (req) => req.path === "/7" && req.tenant === "ann",
    cost: (req) => (req.query.dear === "" ? 2 : 1),
    count: (status, req) => status < 500 && req.ips.length === 0,
  });
  assert.equal(await passing(skipping), [3, 2]);
});

test("the methods of the second argument work detached", async () => {
  const errors: unknown[] = [];
  const options: HostLimitOptions = {
    key: (_, { header }) => header("x-tenant"),
    onError: (error) => {
      errors.push(error);
      return "allow";
    },
  };
  assert.equal(await passing(expressLimit(users(), options)), [2, 2]);
  assert.equal(errors, []);
});

test.run();
