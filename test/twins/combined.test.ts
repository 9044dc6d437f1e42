import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { Redis } from "ioredis";
import { readPolicies, writePolicies } from "../../src/algorithms/index.ts";
import { BatchCounters, type BatchId, LostReplyError } from "../../src/stores/batch-id.ts";
import { type ScriptRunner, scriptRunner } from "../../src/stores/redis/client.ts";
import { RedisStore } from "../../src/stores/redis/redis-store.ts";
import type { CombinedSubrequest, StoreRequest } from "../../src/stores/store.ts";
import { TransitionStore } from "../../src/stores/transition-store.ts";
import { samplePolicies } from "../support/algorithms/samples.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { freshUrl } from "../support/redis/server.ts";
import { describeState } from "../support/stores/describe-state.ts";
import { twinsOf } from "../support/stores/twins-of.ts";
import { runs, suite } from "../support/suite.ts";

const HISTORIES = runs(3600, 40);
const PREFIX = "twins-combined:";

// -- generated histories --

/** Keys for `limitKey`. */
const LIMIT_KEYS = ["limit 1", "limit 2"];
const keptAt = fc.constantFrom(undefined, undefined, 1, 2);
const keptLimit = fc.constantFrom(undefined, undefined, "0", "3", "-1", "many", "2.5", "1e3");

/** One or two policies, in two sets of numbers. Limits of some policies are kept in keys. */
const version = fc
  .array(fc.constantFrom(...samplePolicies), { minLength: 1, maxLength: 2 })
  .chain((kinds) => {
    const numbers = fc.tuple(...kinds.map((kind) => fc.constantFrom(...kind)));
    return fc.tuple(fc.tuple(numbers, numbers), fc.tuple(...kinds.map(() => keptAt)));
  })
  .map(([both, kept]) => ({
    declared: both.map((policies) => writePolicies(policies, kept)),
    set: writePolicies(both[1]),
  }));
/**
 * Each limiter is declared in two ways: with other numbers, or with other algorithms. These have another
 * script, so all requests of a call use one of them.
 */
const limiter = fc
  .tuple(version, version, fc.constantFrom(false, false, true))
  .map(([{ declared, set }, other, hasVersions]) => ({
    declared: [String(declared[0]), String((hasVersions ? other : { declared }).declared[1])],
    set,
    hasVersions,
  }));
const permits = fc.constantFrom(1, 1, 1, 2, 3, 0.5, 7, 1e6);
const micros = fc.oneof(
  fc.constantFrom(0, 0, 1, 1000, 200_000, 1_000_000),
  fc.integer({ min: 0, max: 3_000_000 }),
);
const part = fc.record({
  amount: fc.tuple(permits, permits),
  longest: fc.oneof(fc.constantFrom(0, 0, Infinity), micros),
  late: fc.constantFrom(0, 0, 0, 500),
  isOptional: fc.boolean(),
  /** By how much the clock of this part is ahead. */
  ahead: fc.constantFrom(0, 0, 0, 1),
});
/** Combinations of the same limiters, which share a call. */
const combinations = fc.record({
  members: fc.array(fc.nat({ max: 2 }), { minLength: 1, maxLength: 4 }),
  requests: fc.array(
    fc.record({
      verb: fc.constantFrom<"take" | "peek">("take", "take", "take", "peek"),
      /** The policies with which each limiter is declared. */
      declared: fc.tuple(...[0, 1, 2].map(() => fc.constantFrom(0, 0, 0, 1))),
      parts: fc.tuple(part, part, part, part),
    }),
    { minLength: 1, maxLength: 3 },
  ),
});
const other = fc.record({
  member: fc.nat({ max: 2 }),
  verb: fc.constantFrom("back", "pause", "charge", "set"),
  micros,
  grant: fc.nat({ max: 9 }),
  /** How many times it is sent: all but the last reply are lost. */
  times: fc.constantFrom(1, 1, 2),
  /** Whether its batches have the caller of the combinations. */
  isSameCaller: fc.boolean(),
});
const history = fc.record({
  limiters: fc.tuple(limiter, limiter, limiter),
  steps: fc.array(
    fc.record({
      step: fc.oneof(micros, fc.constant(-5)),
      limits: fc.tuple(keptLimit, keptLimit),
      combinations,
      /** The call is sent twice, and the first reply is lost. */
      isSentTwice: fc.constantFrom(false, false, true),
      other,
    }),
    { minLength: 1, maxLength: 6, size: "max" },
  ),
});
type History = typeof history extends fc.Arbitrary<infer T> ? T : never;

// -- how they are run --

/** A grant that can be given back: its limiter, as it was declared. */
interface Grant {
  readonly member: number;
  readonly declared: string;
  readonly request: StoreRequest;
}

let redis: Redis;
let isSentTwice = false;
/** The batches of the parts of each combination in the last call. */
let sent: BatchId[][] = [];

const runner: ScriptRunner = {
  async runScript(script, keys, args) {
    if (args[0] === "take" || args[0] === "peek") sent = batchesOf(args);
    if (isSentTwice) await scriptRunner(redis).runScript(script, keys, args);
    return scriptRunner(redis).runScript(script, keys, args);
  },
};

/** Returns the batches of the parts of each combination of a call. */
function batchesOf(args: readonly string[]): BatchId[][] {
  const batches: BatchId[][] = [];
  for (let at = 0; at < args.length; ) {
    const ids: BatchId[] = [];
    const end = at + 3 + Number(args[at + 2]);
    at += 3;
    while (at < end) {
      ids.push({ caller: String(args[at + 3]), number: Number(args[at + 4]) });
      at += 8 + String(args[at + 1]).split("\n").length;
    }
    batches.push(ids);
  }
  return batches;
}

/** The results of the last transmission, as the caller gets them. */
function orLost<T>(run: () => T, times: number): T | LostReplyError {
  try {
    for (let i = 1; i < times; i++) run();
    return run();
  } catch (error) {
    if (error instanceof LostReplyError) return error;
    throw error;
  }
}

async function outcome<T>(promise: Promise<T>): Promise<T | LostReplyError> {
  const [settled] = await Promise.allSettled([promise]);
  if (settled.status === "fulfilled") return settled.value;
  if (settled.reason instanceof LostReplyError) return settled.reason;
  throw settled.reason;
}

async function agree({ limiters, steps }: History, id: number): Promise<number> {
  const transition = new TransitionStore();
  const storeFor = (declared: string) => {
    const names = readPolicies(declared).map(({ algorithm }) => algorithm.name);
    return new RedisStore(runner, PREFIX, twinsOf(names), LIMIT_KEYS);
  };
  const key = (member: number) => `${id}:${member}`;
  const numbers = (member: number, which: number) => String(limiters[member]?.declared[which]);
  const counters = limiters.map(() => new BatchCounters());
  const grants: Grant[] = [];
  let now = 1_700_000_000_000_000 + id;
  let count = 0;

  const same = async (what: unknown, here: unknown, there: unknown) => {
    if (!isDeepStrictEqual(there, here)) {
      const shown = [what, there, here].map((one) => JSON.stringify(one));
      throw new Error(`${shown[0]}: Redis answers\n${shown[1]}\nexpected\n${shown[2]}`);
    }
    for (const member of [0, 1, 2]) {
      const bytes = await redis.getBuffer(PREFIX + key(member));
      const expected = transition.saved(key(member))?.bytes;
      if (describeState(bytes) === describeState(expected)) continue;
      throw new Error(
        `${JSON.stringify(what)}: Redis stores\n${describeState(bytes)}\nexpected\n${describeState(expected)}`,
      );
    }
  };

  let number = 0;
  for (const { step, limits, combinations, other, ...call } of steps) {
    now += step;
    for (const [i, key] of LIMIT_KEYS.entries()) {
      const limit = limits[i];
      if (limit === undefined) {
        transition.limits.delete(key);
        await redis.del(key);
      } else {
        transition.limits.set(key, limit);
        await redis.set(key, limit);
      }
    }
    const [first = { declared: [] }] = combinations.requests;
    const requests = combinations.requests.map((request) => ({
      verb: request.verb,
      parts: combinations.members.map((member, i) => {
        const { ahead, ...part } = request.parts[i] as (typeof request.parts)[number];
        const { declared: of } = limiters[member]?.hasVersions ? first : request;
        const declared = numbers(member, of[member] ?? 0);
        return { ...part, member, declared, now: now + ahead };
      }),
    }));
    isSentTwice = call.isSentTwice;
    const there = await Promise.all(
      requests.map(({ verb, parts }) => {
        const placed = parts.map(({ member, ...each }): CombinedSubrequest => {
          const location = storeFor(each.declared).location(key(member));
          return { ...each, location, counters: counters[member] as BatchCounters };
        });
        const { store } = (placed[0] as CombinedSubrequest).location;
        return outcome(store.runTogether(verb, placed));
      }),
    );
    const combine = () =>
      requests.map(({ verb, parts }, i) => {
        const placed = parts.map((each) => {
          const store = storeFor(each.declared);
          const location = { ...store.location(key(each.member)), key: key(each.member) };
          return { ...each, location: { ...location, limitKeys: LIMIT_KEYS } };
        });
        return orLost(() => transition.combination(verb, placed, sent[i]), 1);
      });
    if (isSentTwice) combine();
    const here = combine();
    isSentTwice = false;
    await same(requests, here, there);
    count += here.length;
    requests.forEach(({ verb, parts }, i) => {
      const reply = here[i];
      if (verb === "peek" || reply instanceof LostReplyError || !reply?.passes) return;
      parts.forEach(({ member, declared, amount }, at) => {
        const part = reply.parts[at];
        if (part?.fate !== "passes") return;
        const { receipts } = part.answer;
        grants.push({ member, declared, request: { verb: "back", amount, receipts } });
      });
    });

    const grant = grants[other.grant % Math.max(1, grants.length)];
    const member = (other.verb === "back" && grant?.member) || other.member;
    const request = (): StoreRequest => {
      switch (other.verb) {
        case "back":
          return grant?.member === member ? grant.request : { verb: "deficit" };
        case "charge":
          return { verb: "charge", amount: [1, 1] };
        case "set":
          return { verb: "set", numbers: String(limiters[member]?.set) };
        default:
          return { verb: "pause", micros: other.micros };
      }
    };
    const granted = other.verb === "back" && grant?.member === member ? grant.declared : undefined;
    const declared = granted ?? numbers(member, 0);
    const own = counters[member] as BatchCounters;
    const counter = own.take();
    own.release(counter);
    const batchId = other.isSameCaller ? counter.next() : { caller: "process0", number: ++number };
    const runHere = () =>
      transition.runBatch(key(member), declared, [request()], now, LIMIT_KEYS, batchId);
    const store = storeFor(declared);
    const run = () => store.run(key(member), declared, [request()], now, batchId);
    for (let i = 1; i < other.times; i++) await run();
    await same(other, orLost(runHere, other.times), await outcome(run()));
  }
  return count;
}

const twins = suite("twins, several limiters at once", { timeoutMs: 120_000 });

twins.before(async () => {
  await redisServer();
  redis = new Redis(await freshUrl());
});

twins.after(() => {
  redis.disconnect();
});

twins("Redis replies and stores the same as TypeScript, to the last bit", async () => {
  let id = 0;
  let combinations = 0;
  const property = fc.asyncProperty(history, async (one) => {
    combinations += await agree(one, id++);
  });
  await fc.assert(property, { numRuns: HISTORIES, includeErrorInReport: true });
  console.log(`  ${HISTORIES} histories, ${combinations} combinations`);
});

twins.run();
