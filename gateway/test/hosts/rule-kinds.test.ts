/** Rules for connections and for the bytes of responses, on every server. */
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { createGateway, type UrlRules } from "../../src/index.ts";
import { EVERY } from "../support/http/ask.ts";
import { until } from "../support/http/raw-clients.ts";
import type { Running } from "../support/http/servers.ts";

const SOME_TURNS = 20;

/** Waits until what is on its way through sockets has arrived. */
async function turns(): Promise<void> {
  for (let i = 0; i < SOME_TURNS; i++) await new Promise(setImmediate);
}

for (const [name, [host, ask]] of Object.entries(EVERY)) {
  const test = suite(`rules of all kinds on ${name}`);

  const serving = async (
    rules: UrlRules["rules"],
    run: (server: Running, clock: FakeClock) => Promise<void>,
    work?: () => Promise<void>,
  ) => {
    const clock = new FakeClock();
    const gateway = await createGateway({ rules: { url: "/", rules }, clock });
    const server = await host(gateway, undefined, work);
    try {
      await run(server, clock);
    } finally {
      await server.close();
      await gateway.close();
    }
  };

  test("a request beyond the connections is refused until another is over", async () => {
    const release: (() => void)[] = [];
    const work = () => new Promise<void>((resolve) => void release.push(resolve));
    await serving(
      [
        { actor: "device", connections: 1, name: "conn" },
        { actor: "all", unit: "minute", rpu: 100, name: "rate", algo: "window" },
      ],
      async (server) => {
        const first = ask(server, "/hello");
        await until("it is under way", () => release.length === 1);
        const refused = await ask(server, "/hello");
        assert.equal([refused.status, refused.headers["retry-after"]], [429, "1"]);
        assert.is(refused.headers.ratelimit, '"conn";r=0;t=1');
        assert.is(refused.headers["ratelimit-policy"], '"conn";q=1;qu="concurrent-requests"');
        assert.equal(JSON.parse(refused.body)["violated-policies"], ["conn"]);
        release.pop()?.();
        const { status, headers } = await first;
        assert.equal([status, headers["ratelimit-policy"]], [200, '"rate";q=100;w=60']);
        const next = ask(server, "/hello");
        await until("it is served", () => release.length === 1);
        release.pop()?.();
        assert.is((await next).status, 200);
      },
      work,
    );
  });

  test("responses of one client are sent at its rate, with their fields", async () => {
    await serving(
      [
        { actor: "device", bytesPerSecond: 5 },
        { actor: "all", unit: "minute", rpu: 100, name: "rate", algo: "window" },
      ],
      async (server, clock) => {
        const slowly = async () => {
          let isOver = false;
          const asked = ask(server, "/hello").finally(() => {
            isOver = true;
          });
          while (!isOver) {
            await turns();
            await clock.advance(50);
          }
          return asked;
        };
        for (let i = 0; i < 3; i++) {
          const { status, body, headers } = await slowly();
          assert.equal([status, body], [200, "hello"]);
          assert.is(headers["ratelimit-policy"], '"rate";q=100;w=60');
        }
        assert.ok(clock.now() >= 1900, `${clock.now()} ms`);
        const head = await ask(server, "/hello", { method: "HEAD" });
        assert.is(head.status, 200, "it has no body");
      },
    );
  });

  test.run();
}
