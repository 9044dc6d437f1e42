/** Attacks on the queues: a request whose client has gone leaves its queue, and the requests behind it move up. */
import { createServer, type RequestListener } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { adaptive, type EndedCall } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { isTried, isTriedOneIn, suite } from "../../../test/support/suite.ts";
import {
  type Actor,
  type Checker,
  type CheckResult,
  createGateway,
  type Gateway,
  limitConnections,
  nodeGateway,
  readRules,
} from "../../src/index.ts";
import {
  allGone,
  dial,
  hasLeft,
  LEAVES,
  LEAVES_2,
  openStreams,
  pipeline,
  textOf,
  until,
} from "../support/http/raw-clients.ts";
import { request } from "../support/http/request.ts";
import { HOSTS, type Host, HTTP2_HOSTS, type Running } from "../support/http/servers.ts";

const GONE = 45;

/** Creates a gateway with a queue from which one request goes every 200 ms. */
async function line(clock: FakeClock, visitor: Actor = () => "me"): Promise<Gateway> {
  const rules = readRules(
    "url: /\nrules: [{ actor: visitor, unit: second, rpu: 5, algo: LB, burst: 100 }]",
    { actors: ["visitor"] },
  );
  return createGateway({ rules, actors: { visitor }, clock });
}

interface Attack {
  readonly server: Running;
  readonly clock: FakeClock;
  /** The number of requests that have reached the queue. */
  readonly asked: () => number;
  /** Resolves the asynchronous actors. */
  readonly open: () => void;
}

async function attacked(
  host: Host,
  isLate: boolean,
  attack: (attack: Attack) => Promise<void>,
): Promise<void> {
  const clock = new FakeClock();
  let asked = 0;
  let open = () => {};
  const gate = new Promise<string>((resolve) => {
    open = () => resolve("me");
  });
  const gateway = await line(clock, () => {
    asked += 1;
    return isLate ? gate : "me";
  });
  const server = await host(gateway, {}, async () => {});
  try {
    await attack({ server, clock, asked: () => asked, open: () => open() });
  } finally {
    await server.close();
    await gateway.close();
  }
}

/** Checks that the next client waits only for the one request that was served, not for those whose client has gone. */
async function nextClientGoes({ server, clock, asked }: Attack, isFirst: boolean): Promise<void> {
  const before = asked();
  const served = server.served();
  const { socket, received } = await dial(server);
  socket.write(textOf({}));
  await until("the next client has come", () => asked() === before + 1);
  await sleep(5);
  if (!isFirst) assert.is(received(), "", "it waits for the request that was served");
  await clock.advance(200);
  await until("the next client is answered", () => received().startsWith("HTTP/1.1 200"));
  assert.is(server.served(), served + 1, "no request is served whose client has gone");
  socket.destroy();
}

async function nextStreamGoes({ server, clock, asked }: Attack, isFirst: boolean): Promise<void> {
  const before = asked();
  const served = server.served();
  const { session, streams } = await openStreams(server, 1);
  let status: unknown;
  streams[0]?.on("response", (headers) => {
    status = headers[":status"];
  });
  await until("the next client has come", () => asked() === before + 1);
  await sleep(5);
  if (!isFirst) assert.is(status, undefined, "it waits for the request that was served");
  await clock.advance(200);
  await until("the next client is answered", () => status === 200);
  assert.is(server.served(), served + 1, "no request is served whose client has gone");
  session.destroy();
}

for (const [place, [name, host]] of Object.entries(HOSTS).entries()) {
  const test = suite(`clients that have gone, ${name}`);

  for (const [i, [how, leave]] of Object.entries(LEAVES).entries()) {
    if (!isTried(place, i)) continue;
    test(`a client pipelines ${GONE} requests and ${how}`, () =>
      attacked(host, false, async (attack) => {
        const socket = await pipeline(attack.server, GONE);
        await until("all have come", () => attack.asked() === GONE);
        leave(socket);
        await allGone(attack.server.server);
        assert.is(attack.server.served(), 1);
        await nextClientGoes(attack, false);
      }));
  }

  test("a client leaves while an asynchronous actor runs", () =>
    attacked(host, true, async (attack) => {
      const socket = await pipeline(attack.server, GONE);
      await until("all actors run", () => attack.asked() === GONE);
      socket.destroy();
      await allGone(attack.server.server);
      attack.open();
      await sleep(5);
      assert.is(attack.server.served(), 0);
      await nextClientGoes(attack, true);
    }));

  test("clients break off their uploads", () =>
    attacked(host, false, async (attack) => {
      const fields = "Content-Type: text/plain\r\nContent-Length: 1000\r\n";
      const asked = { method: "POST", fields, body: "hello" };
      const sockets = await Promise.all(
        Array.from({ length: 10 }, () => pipeline(attack.server, 1, asked)),
      );
      await until("all have come", () => attack.asked() === 10);
      for (const socket of sockets) socket.destroy();
      await allGone(attack.server.server);
      await nextClientGoes(attack, false);
    }));

  test.run();
}

for (const [place, [name, host]] of Object.entries(HTTP2_HOSTS).entries()) {
  const test = suite(`clients that have gone, ${name}`);

  for (const [i, [how, leave]] of Object.entries(LEAVES_2).entries()) {
    for (const isLate of [false, true]) {
      if (!isTriedOneIn(3, place, i, Number(isLate))) continue;
      test(`a client opens 50 streams and ${how}${isLate ? " while an actor runs" : ""}`, () =>
        attacked(host, isLate, async (attack) => {
          const client = await openStreams(attack.server, 50);
          await until("all have come", () => attack.asked() === 50);
          leave(client);
          await hasLeft(client, attack.server.server);
          attack.open();
          await sleep(5);
          assert.is(attack.server.served(), isLate ? 0 : 1);
          await nextStreamGoes(attack, isLate);
          client.session.destroy();
        }));
    }
  }

  test.run();
}

const test = suite("clients that have gone, elsewhere");

test("a client leaves before the check begins: neither counted nor served", async () => {
  let asked = 0;
  let served = 0;
  const check = () => {
    asked += 1;
    return { allowed: true, retryMs: 0, outcomes: [] };
  };
  const listener = nodeGateway({ check }, () => {
    served += 1;
  });
  let late = 0;
  /** Calls the gateway late, like a slow authentication before it. */
  const slow: RequestListener = (req, res) => {
    late += 1;
    void sleep(100).then(() => {
      listener(req, res);
      late -= 1;
    });
  };
  for (const isHttp2 of [false, true]) {
    const server = isHttp2 ? createHttp2Server(slow as never) : createServer(slow);
    server.listen(0, "127.0.0.1");
    await until("it listens", () => server.listening);
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const socket = isHttp2 ? (await openStreams({ url }, 5)).socket : await pipeline({ url }, 5);
    await until("all have come", () => late === 5);
    socket.destroy();
    await until("all have been handled", () => late === 0);
    server.close();
  }
  assert.equal([asked, served], [0, 0]);
});

test("a request that other code has answered leaves the queue", () =>
  attacked(
    async (gateway) => {
      let served = 0;
      const listener = nodeGateway(gateway as Checker, (_, res) => {
        served += 1;
        res.end("hello");
      });
      const server = createServer((req, res) => {
        listener(req, res);
        if (req.url !== "/slow") return;
        res.statusCode = 504;
        res.end();
      }).listen(0, "127.0.0.1");
      await until("it listens", () => server.listening);
      const address = server.address() as { port: number };
      const close = () => new Promise<void>((closed) => void server.close(() => closed()));
      return { url: `http://127.0.0.1:${address.port}`, server, served: () => served, close };
    },
    false,
    async (attack) => {
      const first = await dial(attack.server);
      first.socket.write(textOf({}));
      await until("the first is answered", () => first.received().includes("hello"));
      first.socket.write(textOf({ path: "/slow" }).repeat(10));
      await until("all have timed out", () => first.received().split(" 504 ").length === 11);
      await nextClientGoes(attack, false);
      first.socket.destroy();
    },
  ));

test.run();

const learned = suite("clients that have gone, adaptive limits");

/** Returns how many places are free, by a request that ends at once. */
function freeOf(checker: Checker): number {
  let end = () => {};
  const onClose = (closed: () => void) => {
    end = closed;
  };
  const { outcomes } = checker.check({ ...request("/"), onClose, onAnswered() {} }) as CheckResult;
  end();
  return Number(outcomes[0]?.decision.remaining) + 1;
}

for (const [name, host] of Object.entries(HOSTS)) {
  learned(
    `${name}: 20 clients that disconnect at once do not make the server look fast`,
    async () => {
      const clock = new FakeClock();
      const heldMs: number[] = [];
      const strategy = () => (call: EndedCall) => {
        heldMs.push(call.endedMs - call.startedMs);
        return 100;
      };
      const checker = limitConnections(adaptive({ max: 100, start: 100, strategy }), { clock });
      let finish = () => {};
      const isFinished = new Promise<void>((resolve) => {
        finish = resolve;
      });
      let isFirst = true;
      const server = await host(checker, {}, async () => {
        if (!isFirst) return isFinished;
        isFirst = false;
        await clock.advance(50);
      });
      const { socket, received } = await dial(server);
      socket.write(textOf({}));
      await until("the first is answered", () => received().startsWith("HTTP/1.1 200"));
      socket.destroy();
      await until("the first is over", () => heldMs.length === 1);
      const others = await Promise.all(Array.from({ length: 20 }, () => dial(server)));
      for (const other of others) other.socket.write(textOf({}));
      await until("all have come", () => freeOf(checker) === 80);
      await clock.advance(1);
      for (const other of others) other.socket.destroy();
      await until("all have gone", () => freeOf(checker) === 100);
      finish();
      assert.equal(heldMs, [50]);
      await server.close();
    },
  );
}

learned.run();
