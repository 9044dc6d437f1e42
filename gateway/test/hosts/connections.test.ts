import { adaptive, aimd, ConcurrencyLimiter, type EndedCall } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  type Actor,
  type CheckResult,
  type GatewayRequest,
  limitConnections,
  type SharedSlots,
} from "../../src/index.ts";
import { request } from "../support/http/request.ts";

const test = suite("connections");

/** A request of an actor, and a function that ends it. */
function under(who: string | undefined): { request: GatewayRequest; end: () => void } {
  const listeners: (() => void)[] = [];
  const base = request("/", { headers: who === undefined ? {} : { who } });
  const onClose = (closed: () => void) => void listeners.push(closed);
  return {
    request: { ...base, onClose },
    end: () => listeners.splice(0).forEach((end) => void end()),
  };
}

const who: Actor = ({ header }) => header("who");

test("at most limit requests of each actor at once; a place is free when the response is over", () => {
  const checker = limitConnections(2, { actor: who, name: "conn" });
  const [one, two, three, other] = [under("ann"), under("ann"), under("ann"), under("bob")];
  const check = ({ request }: { request: GatewayRequest }) => checker.check(request) as CheckResult;
  assert.equal([check(one).allowed, check(two).allowed], [true, true]);
  const refused = check(three);
  assert.equal([refused.allowed, refused.retryMs], [false, 1000]);
  assert.is(refused.outcomes[0]?.rule.name, "conn");
  assert.equal(
    [refused.outcomes[0]?.decision.limit, refused.outcomes[0]?.decision.remaining],
    [2, 0],
  );
  assert.ok(check(other).allowed);
  one.end();
  assert.ok(check(three).allowed);
  assert.not(check(under("ann")).allowed);
  two.end();
  three.end();
  assert.ok(check(under("ann")).allowed && check(under("ann")).allowed);
  assert.not(check(under("ann")).allowed);
});

test("requests without a value are counted by address, apart from those with one", async () => {
  const actors: Actor[] = [
    who,
    async ({ header }) => header("who"),
    ({ header }) => header("who") ?? "",
  ];
  for (const actor of actors) {
    const checker = limitConnections(1, { actor });
    const passes = async (name?: string, remoteAddress = "192.0.2.1") =>
      (await checker.check({ ...under(name).request, remoteAddress })).allowed;
    assert.equal([await passes(), await passes()], [true, false]);
    assert.equal([await passes(undefined, "192.0.2.2"), await passes("ann")], [true, true]);
    assert.equal([await passes("192.0.2.1"), await passes("@192.0.2.1")], [true, true]);
    assert.ok(await passes(undefined, "no address"));
    assert.not(await passes(undefined, "none either"));
  }
});

test("behind a proxy, and by the network of IPv6: a request without a value counts by its client", () => {
  const checker = limitConnections(1, { actor: who, trustedProxies: 1, ipv6Prefix: 48 });
  const passes = (address: string) => {
    const header = (name: string) => (name === "x-forwarded-for" ? address : undefined);
    return (checker.check({ ...under(undefined).request, header }) as CheckResult).allowed;
  };
  assert.equal(
    ["192.0.2.1", "192.0.2.2", "192.0.2.1"].map(passes),
    [true, true, false],
    "not by the address of the proxy",
  );
  assert.equal(["2001:db8::1", "2001:db8:0:ff::2"].map(passes), [true, false]);
  assert.throws(
    () => limitConnections(1, { trustedProxies: -1 }),
    /trustedProxies must be a whole number, 0 or more, got -1/,
  );
});

test("counts by the client's address by default; a request whose end is not reported is not counted", () => {
  const checker = limitConnections(1);
  const from = (remoteAddress: string) => ({ ...under(undefined).request, remoteAddress });
  const passes = (address: string) => (checker.check(from(address)) as CheckResult).allowed;
  assert.equal(
    [passes("192.0.2.1"), passes("192.0.2.1"), passes("192.0.2.2")],
    [true, false, true],
  );
  const { onClose: _, ...endless } = from("192.0.2.1");
  assert.ok((checker.check(endless) as CheckResult).allowed);
});

test("an adaptive limit counts all requests together, and learns from how long they take", async () => {
  const clock = new FakeClock();
  const heldMs: number[] = [];
  let limit = 2;
  const strategy = () => (call: EndedCall) => {
    heldMs.push(call.endedMs - call.startedMs);
    return limit;
  };
  const checker = limitConnections(adaptive({ max: 4, start: 2, strategy }), { clock });
  const [one, two, three] = [under("ann"), under("bob"), under("cat")];
  const check = ({ request }: { request: GatewayRequest }) => checker.check(request) as CheckResult;
  assert.equal([check(one).allowed, check(two).allowed, check(three).allowed], [true, true, false]);
  await clock.advance(30);
  limit = 3;
  one.end();
  assert.equal(heldMs, [30]);
  const { allowed, outcomes } = check(three);
  assert.ok(allowed);
  assert.equal([outcomes[0]?.decision.limit, outcomes[0]?.decision.remaining], [3, 1]);
});

test("under an adaptive limit a request that is never reported as over teaches nothing", async () => {
  const clock = new FakeClock();
  const limit = adaptive({ max: 1, strategy: aimd() });
  const checker = limitConnections(limit, { clock, maxAgeMs: 1000 });
  const passes = () => (checker.check(under("ann").request) as CheckResult).allowed;
  assert.equal([passes(), passes()], [true, false]);
  await clock.advance(1000);
  assert.ok(passes());
});

test("under an adaptive limit clients that disconnect at once teach nothing, and those that give up late do", async () => {
  const clock = new FakeClock();
  const heldMs: number[] = [];
  const strategy = () => (call: EndedCall) => {
    heldMs.push(call.endedMs - call.startedMs);
    return 4;
  };
  const checker = limitConnections(adaptive({ max: 4, strategy }), { clock });
  const ended = async (ms: number, status: number | undefined) => {
    const { request: open, end } = under("ann");
    let answered = (_status: number | undefined) => {};
    const onAnswered = (listener: typeof answered) => {
      answered = listener;
    };
    assert.ok((checker.check({ ...open, onAnswered }) as CheckResult).allowed);
    await clock.advance(ms);
    answered(status);
    end();
  };
  await ended(50, 200);
  for (let i = 0; i < 20; i++) await ended(1, undefined);
  assert.equal(heldMs, [50]);
  await ended(1000, undefined);
  await ended(60, 200);
  assert.equal(heldMs, [50, 1000, 60]);
});

test("an adaptive limit takes no option that is about actors", () => {
  const limit = adaptive({ max: 4 });
  assert.throws(() => limitConnections(limit, { actor: who }), /together: leave out actor$/);
  assert.throws(() => limitConnections(limit, { ipv6Prefix: 48 }), /leave out ipv6Prefix/);
});

test("bad arguments", () => {
  assert.throws(() => limitConnections(0), /limit must be a whole number, 1 or more, got 0/);
  assert.throws(() => limitConnections(1.5), /limit must be a whole number, 1 or more, got 1.5/);
  const wrong = (options: object) => () => limitConnections(1, options);
  assert.throws(wrong({ actor: "device" }), /actor must be a function, got "device"/);
  assert.throws(
    wrong({ actorTimeoutMs: 0 }),
    /actorTimeoutMs must be a finite number above 0, got 0/,
  );
  assert.throws(wrong({ name: 1 }), /name must be a string, got 1/);
  assert.throws(wrong({ name: "日" }), /name must be printable ASCII, got "日"/);
  assert.throws(
    wrong({ key: who }),
    /options has no "key"; expected one of actor, trustedProxies, ipv6Prefix, actorTimeoutMs, name/,
  );
});

test("processes that share a limiter share the places, and close it after the last request", async () => {
  let closed = 0;
  const limiter = (key: string, limit: number): SharedSlots => {
    assert.match(key, /^#\S{20,}$/);
    const shared = ConcurrencyLimiter.create(limit);
    const all = limiters.get(key) ?? shared;
    limiters.set(key, all);
    return {
      tryAcquire: async () => all.tryAcquire(),
      close: async () => {
        closed += 1;
      },
    };
  };
  const limiters = new Map<string, ConcurrencyLimiter>();
  const [one, other] = [0, 1].map(() => limitConnections(2, { actor: who, limiter }));
  const [a, b, c] = [under("ann"), under("ann"), under("ann")];
  assert.ok((await one?.check(a.request))?.allowed);
  assert.ok((await other?.check(b.request))?.allowed);
  const refused = await other?.check(c.request);
  assert.equal([refused?.allowed, refused?.retryMs], [false, 1000]);
  assert.ok((await one?.check(under("bob").request))?.allowed);
  a.end();
  a.end();
  assert.ok((await other?.check(c.request))?.allowed);
  for (const each of [b, c]) each.end();
  await new Promise(setImmediate);
  assert.is(closed, 2);
  assert.is(
    [...limiters.values()].reduce((sum, { active }) => sum + active, 0),
    1,
  );
});

test("a shared place is freed after maxAgeMs, and an error of the store is the caller's", async () => {
  const clock = new FakeClock();
  let held = 0;
  let broken = false;
  const limiter = (): SharedSlots => ({
    tryAcquire: async () => {
      if (broken) throw new Error("away");
      held += 1;
      return {
        release: async () => {
          held -= 1;
          throw new Error("away");
        },
      };
    },
  });
  const checker = limitConnections(1, { actor: who, limiter, maxAgeMs: 1000, clock });
  await checker.check(under("ann").request);
  await checker.check(request("/"));
  assert.is(held, 2);
  await clock.advance(1000);
  assert.is(held, 0);
  broken = true;
  const error = await Promise.resolve(checker.check(under("ann").request)).catch(String);
  assert.is(error, "Error: away");
  assert.throws(
    () => limitConnections(1, { limiter: 5 as unknown as () => SharedSlots }),
    /limiter must be a function, got 5/,
  );
});

test.run();
