import { getEventListeners } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import * as assert from "uvu/assert";
import { paced, throttle } from "../../../src/adapters/streams/index.ts";
import { throttleNode } from "../../../src/adapters/streams/node.ts";
import { RateLimiter } from "../../../src/index.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { failure, turn, watch } from "../../support/limiter/watch.ts";
import { endless, webSource } from "../../support/streams/forms.ts";
import { suite } from "../../support/suite.ts";

/** A clock that counts the timers that are set. */
class WatchedClock extends FakeClock {
  timers = 0;

  override wakeAt(timeMs: number, wake: () => void) {
    this.timers += 1;
    const timer = super.wakeAt(timeMs, () => {
      this.timers -= 1;
      wake();
    });
    return {
      cancel: () => {
        this.timers -= 1;
        timer.cancel();
      },
    };
  }
}

/** A throttle at a byte a millisecond that has passed 50 of 200 and waits. */
async function waiting() {
  const clock = new WatchedClock();
  const limiter = RateLimiter.create(1000, { clock });
  const stream = throttle(limiter);
  const writer = stream.writable.getWriter();
  const reader = stream.readable.getReader();
  const written = watch(clock, writer.write(new Uint8Array(200)));
  const { value } = await reader.read();
  assert.is(value?.length, 50);
  const read = watch(clock, reader.read());
  await turn();
  assert.is(clock.timers, 1);
  return { clock, limiter, writer, reader, written, read };
}

setFlagsFromString("--expose-gc");
const gc: () => void = runInNewContext("gc");

const test = suite("streams, the web's");

test("throttle() is a TransformStream, also for other libraries", async () => {
  const stream = throttle(RateLimiter.create(1e9));
  assert.instance(stream, TransformStream);
  const body = new Response("a fetch body").body as ReadableStream<Uint8Array>;
  assert.is(await new Response(body.pipeThrough(stream)).text(), "a fetch body");
});

test("an abort of the writer ends the wait and reaches the reader at once", async () => {
  const { clock, limiter, writer, written, read } = await waiting();
  const reason = new Error("enough");
  await clock.advance(10);
  await writer.abort(reason);
  await turn();
  assert.is(read.error, reason);
  assert.is(written.error, reason);
  assert.is(clock.timers, 0);
  assert.is(limiter.peek().waitMs, 40);
});

test("a reader that cancels ends the wait and reaches the writer at once", async () => {
  const { clock, limiter, writer, reader, written } = await waiting();
  const reason = new Error("enough");
  await clock.advance(10);
  await reader.cancel(reason);
  await turn();
  assert.is(written.error, reason);
  assert.is(await failure(() => writer.closed), reason);
  assert.is(clock.timers, 0);
  assert.is(limiter.peek().waitMs, 40);
});

test("a pipe that is aborted ends its source and its target", async () => {
  const clock = new WatchedClock();
  const limiter = RateLimiter.create(1000, { clock });
  const controller = new AbortController();
  const { signal } = controller;
  const reason = new Error("enough");
  let source: unknown;
  let target: unknown;
  const from = new ReadableStream<Uint8Array>({
    pull: (from) => from.enqueue(new Uint8Array(200)),
    cancel(why) {
      source = why;
    },
  });
  const to = new WritableStream({
    abort(why) {
      target = why;
    },
  });
  const done = watch(clock, from.pipeThrough(throttle(limiter), { signal }).pipeTo(to));
  await clock.advance(60);
  controller.abort(reason);
  await clock.advance(100); // a pipe waits for the pending write, on any platform
  assert.is(done.error, reason);
  assert.is(source, reason);
  assert.is(target, reason);
  assert.is(clock.timers, 0);
});

test("nothing is charged for a reader that does not read", async () => {
  const clock = new WatchedClock();
  const limiter = RateLimiter.create(1000, { clock });
  const reader = webSource(endless(200)).pipeThrough(throttle(limiter)).getReader();
  await clock.advance(1000);
  assert.is(limiter.peek().remaining, 1001);
  assert.is((await reader.read()).value?.length, 50);
  await clock.advance(2000);
  assert.is(limiter.peek().remaining, 1001);
  await reader.cancel();
});

test("many streams of one signal add one listener", async () => {
  const limiter = RateLimiter.create(1e9, { clock: new FakeClock() });
  const controller = new AbortController();
  const { signal } = controller;
  let listeners = 0;
  const add = signal.addEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => {
    listeners += 1;
    add(...args);
  };
  const streams = Array.from({ length: 20 }, () => throttle(limiter, { signal }));
  assert.is(listeners, 1);
  const [first, ...others] = streams;
  await first?.readable.cancel();
  controller.abort(new Error("enough"));
  for (const { readable } of others) {
    assert.match(String(await failure(() => readable.getReader().read())), /enough/);
  }
  assert.ok((await first?.readable.getReader().read())?.done);
});

test("a signal has no listener after the stream, however it ended", async () => {
  const limiter = RateLimiter.create(Infinity);
  const { signal } = new AbortController();
  const body = () => new Response("hello").body as ReadableStream<Uint8Array>;
  const streams = [1, 2].map(() => body().pipeThrough(throttle(limiter, { signal })));
  const node = Readable.from(["hello"]).pipe(throttleNode(limiter, { signal }));
  assert.is(getEventListeners(signal, "abort").length, 1);
  const texts = streams.map((stream) => new Response(stream).text());
  assert.equal(await Promise.all([...texts, text(node)]), ["hello", "hello", "hello"]);
  for await (const _ of paced(body(), limiter, { signal })) break;
  assert.is(getEventListeners(signal, "abort").length, 0);
});

test("streams that have ended leave the others larger turns", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10_000, { clock });
  const first = async () => {
    const reader = webSource(endless(5000)).pipeThrough(throttle(limiter)).getReader();
    const read = watch(clock, reader.read());
    await clock.advance(2000);
    await reader.cancel();
    return read.value?.value?.length;
  };
  const reading = async (count: number) => {
    const readers = Array.from({ length: count }, () =>
      webSource(endless(5000)).pipeThrough(throttle(limiter)).getReader(),
    );
    for (const reader of readers) watch(clock, reader.read());
    await clock.advance(2000);
    return readers;
  };
  const others = await reading(4);
  assert.is(await first(), 100);
  for (const reader of others) await reader.cancel();
  assert.is(await first(), 500);
  // a turn is worth a millisecond for any number of streams
  const many = await reading(200);
  assert.is(await first(), 10);
  for (const reader of many) await reader.cancel();
});

test("a stream counts as a sharer from its first charge on, not before", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(10_000, { clock });
  const unread = Array.from({ length: 9 }, () => throttle(limiter));
  const free = throttle(limiter, { freeBytes: 5000 });
  const sizes: unknown[] = [];
  for (const stream of [free, throttle(limiter)]) {
    const reader = webSource(endless(5000)).pipeThrough(stream).getReader();
    sizes.push((await reader.read()).value?.length);
  }
  assert.equal(sizes, [5000, 500]);
  assert.is(unread.length, 9);
});

test("a transfer of the stream is refused, since it would not be paced", async () => {
  const limiter = RateLimiter.create(1000, { clock: new FakeClock() });
  const stream = throttle(limiter);
  const transfer = [stream as unknown as ArrayBuffer];
  assert.throws(
    () => structuredClone(stream, { transfer }),
    (error: unknown) => (error as DOMException).name === "DataCloneError",
  );
  // and leaves it as it was
  const reader = webSource(endless(200)).pipeThrough(stream).getReader();
  assert.is((await reader.read()).value?.length, 50);
  await reader.cancel();
});

test("a throttle that was created and never used is collected, whatever its signal", async () => {
  const limiter = RateLimiter.create(1000, { clock: new FakeClock() });
  const { signal } = new AbortController();
  const refs = [1, 2, 3].flatMap(() => [
    new WeakRef(throttle(limiter, { signal })),
    new WeakRef(throttleNode(limiter, { signal })),
  ]);
  assert.is(getEventListeners(signal, "abort").length, 1);
  for (let i = 0; i < 50 && getEventListeners(signal, "abort").length > 0; i++) {
    await new Promise(setImmediate); // a WeakRef holds until the end of the turn
    gc();
  }
  assert.equal(
    refs.map((ref) => ref.deref()),
    refs.map(() => undefined),
  );
  assert.is(getEventListeners(signal, "abort").length, 0);
});

test("a throttle that is used is kept by its signal, and ends with it", async () => {
  const clock = new FakeClock();
  const limiter = RateLimiter.create(1000, { clock });
  const controller = new AbortController();
  const { signal } = controller;
  const used: Promise<unknown>[] = [
    throttle(limiter, { signal }).readable.getReader().read(),
    text(throttleNode(limiter, { signal })),
  ];
  const reads = used.map((each) => watch(clock, each));
  for (let i = 0; i < 3; i++) {
    await new Promise(setImmediate);
    gc();
  }
  const reason = new Error("enough");
  controller.abort(reason);
  await turn();
  assert.equal(
    reads.map(({ error }) => error),
    [reason, reason],
  );
});

test("the module loads nothing of Node", () => {
  const folder = "src/adapters/streams";
  const files = readdirSync(folder).filter((file) => file !== "node.ts");
  assert.ok(files.length > 3);
  for (const file of files) {
    assert.not.match(readFileSync(join(folder, file), "utf8"), /from "(node:|\.\/node)/);
  }
});

test.run();
