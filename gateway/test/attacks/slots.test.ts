/**
 * Attacks on the places of `limitConnections`, and of rules for connections: each place is free again when
 * its request is over.
 */

import { createServer as createHttp2Server, type Http2ServerRequest } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { Hono } from "hono";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { isTried, suite } from "../../../test/support/suite.ts";
import {
  type Checker,
  type CheckResult,
  createGateway,
  fetchGateway,
  type GatewayRequest,
  honoGateway,
  limitConnections,
  nodeGateway,
} from "../../src/index.ts";
import {
  allGone,
  dial,
  hasLeft,
  LEAVES,
  LEAVES_2,
  oneByOne,
  oneByOne2,
  openStreams,
  pipeline,
  textOf,
  until,
} from "../support/http/raw-clients.ts";
import { HOSTS, type Host, HTTP2_HOSTS, type Running, running } from "../support/http/servers.ts";

const PLACES = 10;

const PROBE: GatewayRequest = {
  method: "GET",
  url: "/",
  remoteAddress: undefined,
  header: () => undefined,
};

/** Returns the number of free places: takes all of them and frees them again. */
function freeOf(checker: Checker): number {
  const leave: (() => void)[] = [];
  const enter = () => checker.check({ ...PROBE, onClose: (over) => void leave.push(over) });
  while ((enter() as CheckResult).allowed);
  for (const go of leave) go();
  return leave.length;
}

const placesOf = (limit = PLACES) => limitConnections(limit, { actor: () => "me" });

/** A gateway with rules of all kinds. */
const ruled = (connections = PLACES) =>
  createGateway({
    rules: {
      url: "/",
      rules: [
        { actor: "all", connections },
        { actor: "all", unit: "second", rpu: 1e6 },
        { bytesPerSecond: "1g" },
        { actor: "device", bytesPerSecond: "1g", afterBytes: 2 },
      ],
    },
  });

type MakeChecker = (limit?: number) => Checker | Promise<Checker>;

const KINDS: Readonly<Record<string, MakeChecker>> = {
  "places of limitConnections": placesOf,
  "places of a rule": ruled,
};

const never = () => new Promise<void>(() => {});

async function serving(
  host: Host,
  checker: Checker,
  work: () => Promise<void>,
  attack: (server: Running) => Promise<void>,
): Promise<void> {
  const server = await host(checker, {}, work);
  try {
    await attack(server);
  } finally {
    await server.close();
  }
}

/** Returns a filter whose checks wait until `open` is called. */
async function gated(
  make: MakeChecker,
): Promise<{ checker: Checker; asked: () => number; open: () => void; places: Checker }> {
  let asked = 0;
  let open = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const inner = await make();
  const check: Checker["check"] = async (request) => {
    asked += 1;
    await gate;
    return inner.check(request);
  };
  return { checker: { check }, asked: () => asked, open, places: inner };
}

/** Runs tests for one kind of filter on each server, whose place they get. */
function onEach(
  hosts: Readonly<Record<string, Host>>,
  define: (test: ReturnType<typeof suite>, host: Host, make: MakeChecker, place: number) => void,
): void {
  for (const [k, [kind, make]] of Object.entries(KINDS).entries()) {
    for (const [h, [name, host]] of Object.entries(hosts).entries()) {
      if (!isTried(k, h)) continue;
      const test = suite(`${kind}, ${name}`);
      define(test, host, make, h);
      test.run();
    }
  }
}

onEach(HOSTS, (test, host, make, place) => {
  for (const [i, [how, leave]] of Object.entries(LEAVES).entries()) {
    if (!isTried(place, i)) continue;
    test(`a client pipelines as many requests as there are places and ${how}`, async () => {
      const checker = await make();
      await serving(host, checker, never, async (server) => {
        const socket = await pipeline(server, PLACES);
        await until("all places are taken", () => freeOf(checker) === 0);
        leave(socket);
        await until("all places are free", () => freeOf(checker) === PLACES);
      });
    });
  }

  test("the first request of a pipeline still runs, the later ones have answers, and the client closes", async () => {
    const checker = await make();
    let isFirst = true;
    const work = () => {
      const isHead = isFirst;
      isFirst = false;
      return isHead ? never() : Promise.resolve();
    };
    await serving(host, checker, work, async (server) => {
      const socket = await pipeline(server, PLACES);
      await until("all were served", () => server.served() === PLACES);
      socket.destroy();
      await until("all places are free", () => freeOf(checker) === PLACES);
    });
  });

  test("pipelined uploads whose bodies were read, and a close", async () => {
    const checker = await make();
    await serving(host, checker, never, async (server) => {
      const fields = "Content-Type: text/plain\r\nContent-Length: 5\r\n";
      const socket = await pipeline(server, 5, { method: "POST", fields, body: "hello" });
      await until("five places are taken", () => freeOf(checker) === PLACES - 5);
      socket.destroy();
      await until("all places are free", () => freeOf(checker) === PLACES);
    });
  });

  for (const [what, fields] of Object.entries({
    "an upload is broken off": "Content-Type: text/plain\r\nContent-Length: 1000\r\n",
    "an upload that waits for 100 Continue never comes":
      "Content-Type: text/plain\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n",
  })) {
    test(what, async () => {
      const checker = await make();
      await serving(host, checker, never, async (server) => {
        const body = what.includes("broken") ? "hello" : "";
        const socket = await pipeline(server, 1, { method: "POST", fields, body });
        await until("a place is taken", () => freeOf(checker) === PLACES - 1);
        socket.destroy();
        await until("all places are free", () => freeOf(checker) === PLACES);
      });
    });
  }

  test("clients that leave while an asynchronous actor runs take no place and cause no work", async () => {
    const { checker, asked, open, places } = await gated(make);
    await serving(host, checker, never, async (server) => {
      const socket = await pipeline(server, PLACES);
      await until("all were asked about", () => asked() === PLACES);
      socket.destroy();
      await allGone(server.server);
      open();
      await sleep(20);
      assert.equal([freeOf(places), server.served()], [PLACES, 0]);
    });
  });

  test("HEAD, errors and many requests on one socket leave no place taken", async () => {
    const checker = await make(1);
    await serving(
      host,
      checker,
      async () => {},
      async (server) => {
        const hello = Array<number>(4).fill(200);
        assert.equal(await oneByOne(server, 4, { method: "HEAD" }), hello);
        assert.equal(await oneByOne(server, 4, {}), hello);
        assert.equal(await oneByOne(server, 4, { path: "/bad" }), Array<number>(4).fill(500));
        assert.is(freeOf(checker), 1);
      },
    );
  });

  test("an open socket without a request takes no place, and a request without an answer keeps its place", async () => {
    const checker = await make();
    await serving(host, checker, never, async (server) => {
      const { socket } = await dial(server);
      socket.write(textOf({}));
      await until("a place is taken", () => freeOf(checker) === PLACES - 1);
      const idle = await dial(server);
      await sleep(20);
      assert.is(freeOf(checker), PLACES - 1);
      socket.destroy();
      idle.socket.destroy();
      await until("all places are free", () => freeOf(checker) === PLACES);
    });
  });
});

onEach(HTTP2_HOSTS, (test, host, make, place) => {
  for (const [i, [how, leave]] of Object.entries(LEAVES_2).entries()) {
    if (!isTried(place, i)) continue;
    for (const [what, asked] of Object.entries({
      requests: {},
      uploads: { method: "POST", body: "h" },
    })) {
      test(`a client opens ${what} for all places and ${how}`, async () => {
        const checker = await make();
        await serving(host, checker, never, async (server) => {
          const client = await openStreams(server, PLACES, asked);
          await until("all places are taken", () => freeOf(checker) === 0);
          leave(client);
          await until("all places are free", () => freeOf(checker) === PLACES);
          client.session.destroy();
        });
      });
    }

    test(`a client ${how} while an asynchronous actor runs: no place, and no work`, async () => {
      const { checker, asked, open, places } = await gated(make);
      await serving(host, checker, never, async (server) => {
        const client = await openStreams(server, PLACES);
        await until("all were asked about", () => asked() === PLACES);
        leave(client);
        await hasLeft(client, server.server);
        open();
        await sleep(20);
        assert.equal([freeOf(places), server.served()], [PLACES, 0]);
        client.session.destroy();
      });
    });
  }

  for (const isLate of [false, true]) {
    test(`a client resets uploads with NO_ERROR ${isLate ? "before it takes" : "instead of taking"} its responses`, async () => {
      const checker = await make();
      let finish = () => {};
      const gone = new Promise<void>((resolve) => {
        finish = resolve;
      });
      const work = isLate ? () => gone : async () => {};
      await serving(host, checker, work, async (server) => {
        const asked = { method: "POST", body: "h" };
        const client = await openStreams(server, PLACES, asked, { initialWindowSize: 0 });
        await until("all places are taken", () => freeOf(checker) === 0);
        await until("all are served", () => server.served() === PLACES);
        await sleep(20);
        for (const stream of client.streams) stream.close(0);
        await sleep(20);
        finish();
        await until("all places are free", () => freeOf(checker) === PLACES);
        client.session.destroy();
      });
    });
  }

  test("HEAD, errors and many streams of one session leave no place taken", async () => {
    const checker = await make(1);
    await serving(
      host,
      checker,
      async () => {},
      async (server) => {
        const hello = Array<number>(4).fill(200);
        assert.equal(await oneByOne2(server, 4, { method: "HEAD" }), hello);
        assert.equal(await oneByOne2(server, 4, {}), hello);
        assert.equal(await oneByOne2(server, 4, { path: "/bad" }), Array<number>(4).fill(500));
        await until("the place is free", () => freeOf(checker) === 1);
      },
    );
  });
});

for (const [name, host] of Object.entries(HOSTS)) {
  const test = suite(`many rules, ${name}`);

  test("a request that many rules apply to adds one listener to its response and its socket", async () => {
    const warnings: string[] = [];
    const note = ({ name: kind }: Error) => void warnings.push(kind);
    const rules = Array.from({ length: 20 }, (_, i) => {
      return { name: `places ${i}`, actor: "all", connections: 5 };
    });
    const gateway = await createGateway({ rules: { url: "/", rules } });
    const server = await host(gateway);
    process.on("warning", note);
    try {
      assert.equal(await oneByOne(server, 20, {}), Array(20).fill(200));
      await sleep(5);
      assert.equal(warnings, []);
    } finally {
      process.off("warning", note);
      await server.close();
      await gateway.close();
    }
  });

  test.run();
}

const test = suite("places where the server reports little");

const URL_ = "http://localhost/hello";

test("HTTP/2: a client resets an upload with NO_ERROR of which the handler has read a part", async () => {
  const checker = placesOf(1);
  let read = 0;
  const listener = nodeGateway(checker, (req: Http2ServerRequest) => {
    req.on("data", (chunk: Buffer) => {
      read += chunk.length;
      req.pause();
    });
  });
  const server = await running(createHttp2Server(listener), () => 0);
  const upload = { method: "POST", body: "h".repeat(60_000) };
  const { session, streams } = await openStreams(server, 1, upload);
  await until("a part is read", () => read > 0);
  await sleep(20);
  streams[0]?.close(0);
  await until("the place is free", () => freeOf(checker) === 1);
  session.destroy();
  await server.close();
});

test("HEAD: the body of the handler's answer is never read", async () => {
  const checker = placesOf(1);
  const handle = fetchGateway(checker, () => new Response("hello"));
  const app = new Hono();
  app.use(honoGateway(checker));
  app.get("/hello", (context) => context.text("hello"));
  for (let i = 0; i < 3; i++) {
    assert.is((await handle(new Request(URL_, { method: "HEAD" }))).status, 200);
    assert.is((await app.request(URL_, { method: "HEAD" })).status, 200);
  }
  assert.is(freeOf(checker), 1);
});

test("a filter of the application's that takes a place and then refuses frees it", async () => {
  const checker = placesOf(1);
  const refused: CheckResult = { allowed: false, retryMs: 0, outcomes: [] };
  const check: Checker["check"] = async (request) => {
    await checker.check(request);
    return refused;
  };
  const handle = fetchGateway({ check }, () => new Response("hello"));
  const app = new Hono();
  app.use(honoGateway({ check }));
  for (let i = 0; i < 3; i++) {
    for (const response of [await handle(new Request(URL_)), await app.request(URL_)]) {
      assert.is(response.status, 429);
      await response.text();
    }
  }
  assert.is(freeOf(checker), 1);
});

test("a body that other code has read fails, and frees its place", async () => {
  const checker = placesOf(1);
  const handle = fetchGateway(checker, () => {
    const response = new Response("hello");
    response.body?.getReader();
    return response;
  });
  const response = await handle(new Request(URL_));
  const late = sleep(1000, "no end", { ref: false });
  assert.match(await Promise.race([response.text().catch(String), late]), /TypeError/);
  assert.is(freeOf(checker), 1);
});

test("a body that is never read keeps its place for at most maxAgeMs", async () => {
  const clock = new FakeClock();
  const checker = limitConnections(2, { actor: () => "me", maxAgeMs: 1000, clock });
  const handle = fetchGateway(checker, () => new Response("hello"));
  await handle(new Request(URL_));
  await clock.advance(600);
  const late = await handle(new Request(URL_));
  assert.is((await handle(new Request(URL_))).status, 429);
  await clock.advance(400);
  assert.is(freeOf(checker), 1, "the first is too old, the second is not");
  await late.text();
  assert.is(freeOf(checker), 2, "the end of an answer still counts");
  await clock.advance(10_000);
  assert.is(freeOf(checker), 2);
});

test("a request that ends after its place has lapsed frees no second place", async () => {
  const clock = new FakeClock();
  const checker = limitConnections(1, { actor: () => "me", maxAgeMs: 1000, clock });
  const overs: (() => void)[] = [];
  const enter = () => checker.check({ ...PROBE, onClose: (over) => void overs.push(over) });
  assert.ok((enter() as CheckResult).allowed);
  await clock.advance(1000);
  assert.ok((enter() as CheckResult).allowed);
  overs[0]?.();
  overs[0]?.();
  assert.not((enter() as CheckResult).allowed);
});

test("on a server that never reports the end of a request, it counts for maxAgeMs; without maxAgeMs it does not count", async () => {
  const clock = new FakeClock();
  const aged = limitConnections(1, { actor: () => "me", maxAgeMs: 1000, clock });
  const passes = (checker: Checker) => (checker.check(PROBE) as CheckResult).allowed;
  assert.equal([passes(aged), passes(aged)], [true, false]);
  await clock.advance(999);
  assert.not(passes(aged));
  await clock.advance(1);
  assert.equal([passes(aged), passes(aged)], [true, false]);
  const endless = placesOf(1);
  assert.equal([passes(endless), passes(endless)], [true, true]);
  const wrong = (options: object) => () => limitConnections(1, options);
  assert.throws(wrong({ maxAgeMs: 0 }), /maxAgeMs must be a number above 0.*, got 0/);
  assert.throws(wrong({ clock: {} }), /clock must have now\(\)/);
});

test("the signal aborts while an asynchronous actor runs: no place, and no work", async () => {
  const { checker, open, places } = await gated(placesOf);
  let served = 0;
  const handle = fetchGateway(checker, () => {
    served += 1;
    return new Response("hello");
  });
  const controller = new AbortController();
  const gone = handle(new Request(URL_, { signal: controller.signal }));
  controller.abort();
  open();
  assert.equal([(await gone).status, served, freeOf(places)], [499, 0, PLACES]);
});

test("a platform that imitates Node's requests without a socket", () => {
  const checker = placesOf(1);
  let end = () => {};
  const once = (_: "close", listener: () => void) => {
    end = listener;
  };
  const response = {
    statusCode: 200,
    headersSent: false,
    closed: false,
    once,
    setHeader: () => {},
  };
  let served = 0;
  const listener = nodeGateway(checker, () => {
    served += 1;
  });
  listener({ headers: {} }, { ...response, end: () => {} });
  assert.equal([served, freeOf(checker)], [1, 0]);
  end();
  assert.is(freeOf(checker), 1);
});

test("on Deno the platform reports the end, whether the body is read or not", async () => {
  const checker = placesOf(2);
  const handle = fetchGateway(checker, (_: Request, __: unknown) => new Response("hello"));
  let complete = () => {};
  const completed = new Promise<void>((resolve) => {
    complete = resolve;
  });
  await handle(new Request(URL_), { completed });
  const broken = handle(new Request(URL_), { completed: Promise.reject(new Error("gone")) });
  assert.is((await broken).status, 200);
  await sleep(1);
  assert.is(freeOf(checker), 1);
  complete();
  await sleep(1);
  assert.is(freeOf(checker), 2);
});

test.run();
