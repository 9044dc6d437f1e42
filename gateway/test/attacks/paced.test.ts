/** Attacks on responses that are paced: a client that leaves takes no share of the rate, and nothing waits for it. */
import { createServer, type ServerResponse } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import type { AddressInfo, Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { RateLimiter } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { limitRate, nodeGateway } from "../../src/index.ts";
import {
  allGone,
  dial,
  LEAVES,
  LEAVES_2,
  openStreams,
  pipeline,
  textOf,
  until,
} from "../support/http/raw-clients.ts";

const RATE = 100_000;
const MANY = 30;

interface Paced {
  readonly url: string;
  readonly server: Server;
  readonly clock: FakeClock;
  readonly limiter: RateLimiter;
  /** The responses that were begun. */
  readonly begun: readonly ServerResponse[];
}

/** A server whose responses share a rate. */
async function paced(
  isHttp2: boolean,
  answer: (res: ServerResponse) => void,
  attack: (paced: Paced) => Promise<void>,
): Promise<void> {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(RATE, { clock, burstSeconds: 0 });
  const begun: ServerResponse[] = [];
  const listener = nodeGateway(limitRate({ limiter }), (_, res: ServerResponse) => {
    begun.push(res);
    answer(res);
  });
  const server = isHttp2 ? createHttp2Server(listener as never) : createServer(listener);
  server.listen(0, "127.0.0.1");
  await until("it listens", () => server.listening);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    await attack({ url, server, clock, limiter, begun });
  } finally {
    server.close();
  }
}

/** Checks that the next caller waits for no more than what one response had bought before. */
async function rateIsFree({ clock, limiter }: Paced): Promise<void> {
  for (let i = 0; i < 20; i++) {
    await clock.advance(100);
    await sleep(1);
  }
  assert.is(limiter.peek().waitMs, 0, "responses without a client still buy permits");
}

const whole = (res: ServerResponse) => void res.end(Buffer.alloc(1_000_000));

const test = suite("attacks: paced responses");

for (const [how, leave] of Object.entries(LEAVES)) {
  test(`a client pipelines ${MANY} requests and ${how}: its responses take no more of the rate`, () =>
    paced(false, whole, async (attacked) => {
      const socket = await pipeline(attacked, MANY);
      await until("all have begun", () => attacked.begun.length === MANY);
      leave(socket);
      socket.destroy();
      await allGone(attacked.server);
      await rateIsFree(attacked);
    }));
}

for (const [how, leave] of Object.entries(LEAVES_2)) {
  test(`a client opens ${MANY} streams and ${how}: its responses take no more of the rate`, () =>
    paced(true, whole, async (attacked) => {
      const client = await openStreams(attacked, MANY);
      await until("all have begun", () => attacked.begun.length === MANY);
      leave(client);
      await sleep(20);
      await rateIsFree(attacked);
      client.session.destroy();
    }));
}

for (const which of ["first", "second"]) {
  test(`every writer of the ${which} response of a pipeline learns that its client has left`, async () => {
    const ended: unknown[] = [];
    const write = (res: ServerResponse) => {
      for (const size of [50_000, 10, 0]) {
        res.write(Buffer.alloc(size), (error) => void ended.push(error));
      }
    };
    await paced(false, write, async (attacked) => {
      const { socket } = await dial(attacked);
      socket.write(textOf({}).repeat(which === "first" ? 1 : 2));
      await until("it has begun", () => attacked.begun.length === (which === "first" ? 1 : 2));
      const writes = 3 * attacked.begun.length;
      await sleep(5);
      assert.equal(ended, []);
      socket.destroy();
      await until("all have ended", () => ended.length === writes);
      assert.ok(ended.every((error) => error instanceof Error));
    });
  });
}

test("writes to a response whose client has left are not kept", () =>
  paced(
    false,
    (res) => void res.write("hello"),
    async (attacked) => {
      const { socket } = await dial(attacked);
      socket.write(textOf({}));
      await until("it has begun", () => attacked.begun.length === 1);
      socket.destroy();
      await allGone(attacked.server);
      const ended: unknown[] = [];
      const [res] = attacked.begun;
      for (let i = 0; i < 50; i++)
        res?.write(Buffer.alloc(1000), (error) => void ended.push(error));
      await until("all have ended", () => ended.length === 50);
      res?.end("bye");
      await rateIsFree(attacked);
    },
  ));

test("a body that is written to a status without one ends no process, also in a pipeline", async () => {
  const errors: unknown[] = [];
  const note = (res: ServerResponse) => void res.on("error", (error) => errors.push(error));
  await paced(false, note, async ({ url, clock, begun }) => {
    const { socket, received } = await dial({ url });
    socket.write(textOf({}).repeat(2));
    await until("both have begun", () => begun.length === 2);
    for (const [i, status] of [
      [1, 204],
      [0, 200],
    ] as const) {
      const res = begun[i] as ServerResponse;
      res.statusCode = status;
      res.write("hello");
      res.end("bye");
      await sleep(5);
      await clock.advance(1000);
    }
    await until("both are answered", () => /bye.*HTTP\/1.1 204/s.test(received()));
    assert.equal(errors, []);
    socket.destroy();
  });
});

test.run();
