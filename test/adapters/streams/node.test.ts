import { once } from "node:events";
import { createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import { PassThrough, Readable, Transform } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import * as assert from "uvu/assert";
import { throttleNode } from "../../../src/adapters/streams/node.ts";
import { RateLimiter } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure, turn, watch } from "../../support/limiter/watch.ts";
import { chunksOf } from "../../support/streams/forms.ts";
import { suite } from "../../support/suite.ts";

const test = suite("streams, Node's");

test("the throttle is a Transform, and strings come out as bytes", async () => {
  const stream = throttleNode(RateLimiter.create(1e9));
  assert.instance(stream, Transform);
  stream.write("naïve");
  stream.end();
  assert.equal(await buffer(stream), Buffer.from("naïve"));
});

test("pieces wait for a slow reader", async () => {
  const limiter = RateLimiter.create(1000, { clock: new FakeClock() });
  const stream = throttleNode(limiter, { freeBytes: 100 });
  stream.write(new Uint8Array(150));
  stream.end();
  await turn();
  assert.is(limiter.peek().remaining, 1); // not charged: the free bytes have not been read
  const sizes: number[] = [];
  for await (const piece of stream) sizes.push(piece.length);
  assert.equal(sizes, [100, 50]);
});

test("whole chunks wait for a slow reader, one at a time", async () => {
  const stream = throttleNode(RateLimiter.create(Infinity));
  const sizes = [3, 2, 0, 1, 4];
  for (const size of sizes) stream.write(new Uint8Array(size));
  stream.end();
  const read: (number | undefined)[] = [];
  for (let i = 0; i < 6; i++) {
    await turn();
    read.push(stream.read()?.length);
  }
  assert.equal(read, [3, 2, 1, 4, undefined, undefined]);
  assert.ok(stream.readableEnded);
});

test("destroy in the middle ends the wait", async () => {
  for (const error of [undefined, new Error("enough")]) {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(1000, { clock });
    const stream = throttleNode(limiter);
    const from = Readable.from(chunksOf(new Uint8Array(1000), [200]));
    const done = watch(clock, pipeline(from, stream, new PassThrough().resume()));
    await clock.advance(60);
    stream.destroy(error);
    await turn();
    assert.is((done.error as Error).message, error?.message ?? "Premature close");
    assert.ok(from.destroyed);
    assert.is(limiter.peek().waitMs, 40);
  }
});

test("a client that disconnects ends the response's throttle", async () => {
  const limiter = RateLimiter.create(1000, { clock: new FakeClock() });
  const { promise, resolve } = withResolvers<unknown>();
  const server = createServer((_, response) => {
    const source = Readable.from(chunksOf(new Uint8Array(1000), [200]));
    resolve(failure(() => pipeline(source, throttleNode(limiter), response)));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const request = get({ port: (server.address() as AddressInfo).port, host: "127.0.0.1" });
    const [response] = await once(request, "response");
    await once(response, "data");
    request.destroy();
    assert.is(((await promise) as { code?: string }).code, "ERR_STREAM_PREMATURE_CLOSE");
    assert.is(limiter.peek().waitMs, 50);
  } finally {
    server.close();
  }
});

test("an aborted signal ends the stream with its reason", async () => {
  const controller = new AbortController();
  const stream = throttleNode(RateLimiter.create(1), { signal: controller.signal });
  const ended = failure(() => text(stream));
  controller.abort(new TypeError("no"));
  assert.instance(await ended, TypeError);
});

function withResolvers<T>() {
  let resolve: (value: T | PromiseLike<T>) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

test.run();
