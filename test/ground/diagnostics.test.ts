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
  const heard: unknown[] = [];
  const hear = (message: unknown) => void heard.push(message);
  subscribe("smooth-limiter:refused", hear);
  const limiter = RateLimiter.create(1, { name: "api" });
  limiter.tryAcquire();
  limiter.tryAcquire();
  unsubscribe("smooth-limiter:refused", hear);
  limiter.tryAcquire();
  assert.is(heard.length, 1);
  assert.is((heard[0] as { limiter: string }).limiter, "api");
});

const own = suite("a channel without diagnostics_channel");

own("every subscriber receives every message, until it unsubscribes", () => {
  const channel = new OwnChannel<number>("numbers");
  const heard: string[] = [];
  const first = (n: number, name: string) => void heard.push(`first ${name} ${n}`);
  const second = (n: number) => void heard.push(`second ${n}`);
  assert.is(channel.hasSubscribers, false);
  channel.publish(0);
  channel.subscribe(first);
  channel.subscribe(second);
  assert.is(channel.hasSubscribers, true);
  channel.publish(1);
  assert.is(channel.unsubscribe(first), true);
  assert.is(channel.unsubscribe(first), false);
  channel.publish(2);
  assert.equal(heard, ["first numbers 1", "second 1", "second 2"]);
});

own("a subscriber that unsubscribes during a message does not keep it from others", () => {
  const channel = new OwnChannel<number>("numbers");
  const heard: number[] = [];
  const once = () => void channel.unsubscribe(once);
  channel.subscribe(once);
  channel.subscribe((n) => void heard.push(n));
  channel.publish(1);
  channel.publish(2);
  assert.equal(heard, [1, 2]);
});

own("an error of a subscriber is thrown later, and disturbs no other subscriber", () => {
  const timers = FakeTimers.install({ toFake: ["setTimeout"] });
  try {
    const channel = new OwnChannel<number>("numbers");
    const heard: number[] = [];
    channel.subscribe(() => {
      throw new Error("mine");
    });
    channel.subscribe((n) => void heard.push(n));
    channel.publish(1);
    assert.equal(heard, [1]);
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
    const heard: unknown[] = [];
    lone.wait.subscribe((message) => void heard.push(message));
    const message = { limiter: "api", permits: 1, waitMs: 5 };
    lone.wait.publish(message);
    assert.equal(heard, [message]);
  } finally {
    Object.assign(process, { getBuiltinModule });
  }
});

test.run();
own.run();
