import { Channel, channel, subscribe, unsubscribe } from "node:diagnostics_channel";
import FakeTimers from "@sinonjs/fake-timers";
import * as assert from "uvu/assert";
import { diagnostics, OwnChannel } from "../../src/ground/diagnostics.ts";
import { RateLimiter } from "../../src/index.ts";
import { suite } from "../support/suite.ts";

const test = suite("diagnostics");

test("the channels are those of diagnostics_channel, by name", () => {
  for (const [event, own] of Object.entries(diagnostics)) {
    assert.is(own, channel(`smooth-limiter:${event}`));
  }
  const received: unknown[] = [];
  const listener = (message: unknown) => void received.push(message);
  subscribe("smooth-limiter:refused", listener);
  const limiter = RateLimiter.create(1, { name: "api" });
  limiter.tryAcquire();
  limiter.tryAcquire();
  unsubscribe("smooth-limiter:refused", listener);
  limiter.tryAcquire();
  assert.is(received.length, 1);
  assert.is((received[0] as { limiter: string }).limiter, "api");
});

const own = suite("a channel without diagnostics_channel");

own("every subscriber receives every message, until it unsubscribes", () => {
  const channel = new OwnChannel<number>("numbers");
  const received: string[] = [];
  const first = (n: number, name: string) => void received.push(`first ${name} ${n}`);
  const second = (n: number) => void received.push(`second ${n}`);
  assert.is(channel.hasSubscribers, false);
  channel.publish(0);
  channel.subscribe(first);
  channel.subscribe(second);
  assert.is(channel.hasSubscribers, true);
  channel.publish(1);
  assert.is(channel.unsubscribe(first), true);
  assert.is(channel.unsubscribe(first), false);
  channel.publish(2);
  assert.equal(received, ["first numbers 1", "second 1", "second 2"]);
});

own("a subscriber that unsubscribes during a message does not keep it from others", () => {
  const channel = new OwnChannel<number>("numbers");
  const received: number[] = [];
  const once = () => void channel.unsubscribe(once);
  channel.subscribe(once);
  channel.subscribe((n) => void received.push(n));
  channel.publish(1);
  channel.publish(2);
  assert.equal(received, [1, 2]);
});

own("an error of a subscriber is thrown later, and disturbs no other subscriber", () => {
  const timers = FakeTimers.install({ toFake: ["setTimeout"] });
  try {
    const channel = new OwnChannel<number>("numbers");
    const received: number[] = [];
    channel.subscribe(() => {
      throw new Error("mine");
    });
    channel.subscribe((n) => void received.push(n));
    channel.publish(1);
    assert.equal(received, [1]);
    assert.throws(() => timers.tick(1), /mine/);
  } finally {
    timers.uninstall();
  }
});

own("the fallback is used where the platform has no diagnostics_channel", async () => {
  const { getBuiltinModule } = process;
  const again = new URL("../../src/ground/diagnostics.ts?again", import.meta.url).href;
  try {
    Object.assign(process, { getBuiltinModule: undefined });
    const { diagnostics: lone } = (await import(again)) as { diagnostics: typeof diagnostics };
    assert.is(lone.wait.name, "smooth-limiter:wait");
    assert.is(lone.wait instanceof Channel, false);
    const received: unknown[] = [];
    lone.wait.subscribe((message) => void received.push(message));
    const message = { limiter: "api", permits: 1, waitMs: 5 };
    lone.wait.publish(message);
    assert.equal(received, [message]);
  } finally {
    Object.assign(process, { getBuiltinModule });
  }
});

test.run();
own.run();
