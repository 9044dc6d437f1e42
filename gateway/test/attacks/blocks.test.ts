/** Attacks on blocks: a client must not escape its block by requests that it breaks off. */
import { setTimeout as sleep } from "node:timers/promises";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { createGateway, fetchGateway, type Gateway, readRules } from "../../src/index.ts";
import { EVERY } from "../support/http/ask.ts";
import { allGone, hasLeft, openStreams, pipeline, until } from "../support/http/raw-clients.ts";
import { request } from "../support/http/request.ts";
import { HTTP2_HOSTS } from "../support/http/servers.ts";

const RULES = `
url: /
rules: [{ actor: visitor, unit: day, rpu: 3, count: failures, block: 3600s }]
`;

const LEFT = 2;

interface Slow {
  readonly gateway: Gateway;
  readonly asked: () => number;
  /** Lets all checks go on. */
  readonly open: () => void;
}

/** A gateway whose checks take long. Three failures within a day block a client for an hour. */
async function slow(): Promise<Slow> {
  let asked = 0;
  let open = () => {};
  const gate = new Promise<string>((resolve) => {
    open = () => resolve("me");
  });
  const visitor = () => {
    asked += 1;
    return gate;
  };
  const rules = readRules(RULES, { actors: ["visitor"] });
  const gateway = await createGateway({ rules, actors: { visitor }, clock: new FakeClock() });
  return { gateway, asked: () => asked, open: () => open() };
}

const test = suite("attacks: blocks");

for (const [name, [host, ask]] of Object.entries(EVERY)) {
  test(`${name}: requests that are broken off do not keep a client from being blocked`, async () => {
    const { gateway, asked, open } = await slow();
    const server = await host(gateway);
    try {
      if (name in HTTP2_HOSTS) {
        const client = await openStreams(server, LEFT, { path: "/401" });
        await until("all have come", () => asked() === LEFT);
        client.session.destroy();
        await hasLeft(client, server.server);
      } else {
        for (let i = 0; i < LEFT; i++) {
          const socket = await pipeline(server, 1, { path: "/401" });
          await until("it has come", () => asked() === i + 1);
          socket.destroy();
        }
        await allGone(server.server);
      }
      open();
      await sleep(5);
      const { status } = await ask(server, "/401");
      const refused = await ask(server, "/401");
      assert.equal([status, refused.status], [401, 429]);
      assert.is(refused.headers["retry-after"], "3600");
    } finally {
      await server.close();
      await gateway.close();
    }
  });
}

test("fetch on other platforms: the same, and where onError throws", async () => {
  for (const how of ["leaves", "fails"]) {
    const { gateway, open } = await slow();
    const check: Gateway["check"] = async (...asked) => {
      const verdict = await gateway.check(...asked);
      if (how === "fails" && asked[0].header("fail") !== undefined) throw new Error("no store");
      return verdict;
    };
    const onError = (error: unknown) => {
      throw error;
    };
    const handle = fetchGateway({ check }, () => new Response("no", { status: 401 }), { onError });
    const url = "http://localhost/";
    for (let i = 0; i < LEFT; i++) {
      const controller = new AbortController();
      const { signal } = controller;
      const answer = handle(new Request(url, { signal, headers: { fail: "yes" } }));
      if (how === "leaves") controller.abort();
      open();
      await answer.catch(() => {});
    }
    assert.is((await handle(new Request(url))).status, 401, how);
    const refused = await handle(new Request(url));
    assert.equal([refused.status, refused.headers.get("retry-after")], [429, "3600"], how);
  }
});

test("a client that invents actors does not lift a block that has grown", async () => {
  const clock = new FakeClock();
  const gateway = await createGateway({
    rules: readRules(
      "{ url: /, rules: [{ actor: { header: who }, unit: hour, rpu: 1, block: { for: 10m, most: 1d } }] }",
    ),
    clock,
    maxKeys: 300,
  });
  const ask = async (who: string) => gateway.check(request("/", { headers: { who } }));
  for (let i = 0; i < 2; i++) {
    while ((await ask("mallory")).allowed);
    await clock.advance(600_000);
  }
  // the second block lasts 20 minutes, and half of it is over
  for (let i = 0; i < 2000; i++) await ask(`invented ${i}`);
  const { allowed, retryMs } = await ask("mallory");
  assert.equal([allowed, retryMs], [false, 600_000]);
  await gateway.close();
});

test("a client that fills the table of blocks does not lift the limit itself", async () => {
  const clock = new FakeClock();
  const gateway = await createGateway({
    rules: readRules(
      "{ url: /, rules: [{ actor: { header: who }, unit: hour, rpu: 2, block: { for: 30m, most: 1d } }] }",
    ),
    clock,
    maxKeys: 30,
    whenFull: "refuse",
  });
  const ask = async (who: string) =>
    (await gateway.check(request("/", { headers: { who } }))).allowed;
  let passed = 0;
  for (let i = 0; i < 40; i++) {
    const own = [];
    for (let k = 0; k < 9; k++) own.push(await ask(`client ${i}`));
    assert.ok(own.filter(Boolean).length <= 2, `client ${i}`);
    passed += own.filter(Boolean).length;
  }
  assert.ok(passed > 0);
  await gateway.close();
});

test.run();
