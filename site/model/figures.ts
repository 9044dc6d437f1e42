// The figures of the docs: what the library does in a few settings of each.

import { gcra, KeyedLimiter, RateLimiter } from "smooth-limiter";
import { StoreRateLimiter } from "smooth-limiter/store";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import { ALGORITHMS, type SliderRange } from "./algorithms.ts";
import { fromQuery } from "./settings.ts";
import { type Call, simulate } from "./simulate.ts";
import { whyInWords } from "./why.ts";

/** One row of a figure: the calls of one limiter. */
export interface Lane {
  readonly label: string;
  readonly calls: readonly Call[];
  /** In words, what there is to see. */
  readonly words: string;
  /** The time that is marked, ms, such as an outage. */
  readonly marked?: readonly [fromMs: number, untilMs: number];
}

type Range = Omit<SliderRange, "label">;

export interface Figure {
  readonly title: string;
  readonly seconds: number;
  /** What the reader chooses. */
  readonly question: string;
  /** What there is to choose from: the words for each value, the first of them at the beginning; or a slider. */
  readonly choices: Readonly<Record<string, string>> | Range;
  lanes(choice: string): Promise<readonly Lane[]>;
  /** The query with which the playground shows it, if it can. */
  playground?(choice: string): string;
}

/** 40 bars over 4 s: ten requests at the end of a second, and ten at the beginning of the next. */
const AT_THE_EDGE = `${"0".repeat(19)}aa`;

const WARM_UPS: Readonly<Record<string, number>> = { short: 0.5, medium: 2, long: 5 };

/** 4 s in 40 bars: a pause, and then twenty calls within a tenth of a second. */
const burst: Figure = {
  title: "RateLimiter.create(10): nothing for a second, then twenty calls",
  seconds: 4,
  question: "permits per second",
  choices: { min: 2, max: 20, step: 1, initial: 10 },
  playground: (choice) =>
    `algorithm=smoothBursty&rate=${choice}&burstSeconds=1&verb=wait&traffic=drawn&bars=${"0".repeat(10)}k&seconds=4`,
  async lanes(choice) {
    const series = await simulate(fromQuery(String(this.playground?.(choice))));
    const words = whyInWords(series).replace(/\.$/, "");
    return [{ label: `RateLimiter.create(${choice})`, calls: series.calls, words }];
  },
};

const SIZES: Readonly<Record<string, readonly number[]>> = {
  large: [1, 8, 1, 1, 1],
  equal: [1, 1, 1, 1, 1],
};

const prepay: Figure = {
  title: "Five calls come together at four permits a second",
  seconds: 4,
  question: "the second one takes",
  choices: { large: "8 permits", equal: "1 permit" },
  async lanes(choice) {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(4, { clock, burstSeconds: 0 });
    const calls = (SIZES[choice] ?? []).map((permits, i) =>
      recorded(clock, i === 1 && permits > 1 ? `acquire(${permits})` : "acquire()", () =>
        limiter.acquire(permits),
      ),
    );
    await clock.advance(4000);
    const [, second, third] = calls.map(({ startedMs = 0 }) => startedMs);
    const words = `the second starts at ${second} ms, the third at ${third} ms: it pays for the one before`;
    return [{ label: "acquire(n)", calls, words }];
  },
};

/** 4 s in 40 bars: a pause of a second, twenty calls at once, and ten more a second and a half later. */
const TWO_RUSHES = `${"0".repeat(10)}k${"0".repeat(14)}a`;

const algorithms: Figure = {
  title: "Ten a second: twenty calls come together after a pause, and later ten more",
  seconds: 4,
  question: "algorithm",
  choices: Object.fromEntries(Object.entries(ALGORITHMS).map(([name, { label }]) => [name, label])),
  playground: (choice) =>
    `algorithm=${choice}&verb=wait&traffic=drawn&bars=${TWO_RUSHES}&seconds=4`,
  async lanes(choice) {
    const series = await simulate(fromQuery(String(this.playground?.(choice))));
    return [{ label: choice, calls: series.calls, words: whyInWords(series).replace(/\.$/, "") }];
  },
};

const keys: Figure = {
  title: "Two requests a second: ann sends eight a second, bob and cleo one",
  seconds: 4,
  question: "the limit is for",
  choices: { each: "each user", all: "all together" },
  async lanes(choice) {
    const clock = new FakeClock();
    const policy = gcra({ limit: 2, periodMs: 1000 });
    const limiters = KeyedLimiter.create(policy, { clock });
    const calls: Call[] = [];
    const ask = (user: string) => {
      const limiter = limiters.for(choice === "each" ? user : "all");
      calls.push(recorded(clock, user, async () => limiter.tryAcquire()));
    };
    for (let ms = 0; ms < 4000; ms += 125) {
      ask("ann");
      if (ms % 1000 === 250) ask("bob");
      if (ms % 1000 === 750) ask("cleo");
      await clock.advance(125);
    }
    const passed = ["ann", "bob", "cleo"].map((user) => {
      const own = calls.filter(({ tenant }) => tenant === user);
      const granted = own.filter(({ startedMs }) => startedMs !== undefined);
      return `${user} ${granted.length} of ${own.length}`;
    });
    const label = choice === "each" ? "users.for(user)" : "one limiter";
    return [{ label, calls, words: `granted are ${passed.join(", ")}` }];
  },
};

const processes: Figure = {
  title: "Three processes call a service that allows five requests a second",
  seconds: 4,
  question: "they have",
  choices: { one: "one limit, in a store", each: "a limiter each" },
  async lanes(choice) {
    const clock = new FakeClock();
    const store = memoryStore({ clock });
    const limiters = ["a", "b", "c"].map((tenant, i) => {
      const name = choice === "one" ? "shared" : `process ${i}`;
      const options = { clock, burstSeconds: 0 };
      return { tenant, limiter: StoreRateLimiter.create(store, name, 5, options) };
    });
    const calls: Call[] = [];
    for (let ms = 0; ms < 4000; ms += 100) {
      for (const { tenant, limiter } of limiters)
        calls.push(recorded(clock, tenant, () => limiter.tryAcquire()));
      await clock.advance(100);
    }
    await Promise.all(limiters.map(({ limiter }) => limiter.close()));
    const words = `${mostWithin(calls, 1000)} in the busiest second, all together`;
    return [{ label: choice === "one" ? "one limit" : "three limiters", calls, words }];
  },
};

const warmingUp: Figure = {
  title: "Ten requests a second, after a start and after a pause",
  seconds: 10,
  question: "warm-up",
  choices: { short: "0.5 s", medium: "2 s", long: "5 s" },
  playground: (choice) =>
    `algorithm=smoothWarmingUp&rate=10&warmupSeconds=${WARM_UPS[choice]}&traffic=cold&rps=10`,
  async lanes(choice) {
    const { calls } = await simulate(fromQuery(String(this.playground?.(choice))));
    const words = `the longest wait is ${longestWaitMs(calls)} ms`;
    return [{ label: "smoothWarmingUp", calls, words }];
  },
};

const doubleBurst: Figure = {
  title: "Ten a second: ten requests at the end of a window, and ten at the beginning of the next",
  seconds: 4,
  question: "each caller",
  choices: { try: "is granted now or refused", wait: "waits" },
  playground: (choice) => `algorithm=fixedWindow&${edge(choice)}&compare=slidingLog`,
  lanes: (choice) =>
    Promise.all(
      (["fixedWindow", "slidingWindow", "slidingLog"] as const).map(async (algorithm) => {
        const { calls } = await simulate(fromQuery(`algorithm=${algorithm}&${edge(choice)}`));
        return { label: algorithm, calls, words: `${mostWithin(calls, 1000)} within a second` };
      }),
    ),
};

function edge(verb: string): string {
  return `limit=10&windowSeconds=1&verb=${verb}&traffic=drawn&bars=${AT_THE_EDGE}&seconds=4`;
}

const cancel: Figure = {
  title: "Six callers wait at two a second",
  seconds: 4,
  question: "at 0.75 s",
  choices: { none: "all keep waiting", third: "caller 3 leaves", fourth: "caller 4 leaves" },
  async lanes(choice) {
    const clock = new FakeClock();
    const limiter = RateLimiter.create(2, { clock });
    const leave = new AbortController();
    const leaving = ["", "", "third", "fourth"].indexOf(choice);
    const calls = Array.from({ length: 6 }, (_, i) => {
      const signal = choice !== "none" && i === leaving ? leave.signal : undefined;
      return recorded(clock, `caller ${i + 1}`, () => limiter.acquire(1, { signal }));
    });
    await clock.advance(750);
    leave.abort();
    await clock.advance(3250);
    const words = choice === "none" ? "one every 500 ms" : "those behind it move up: no gap";
    return [{ label: "acquire({ signal })", calls, words }];
  },
};

const fair: Figure = {
  title: "Three tenants share ten a second: a is steady, b comes in bursts, c sends 45 at once",
  seconds: 10,
  question: "they wait in",
  choices: { one: "one queue", fair: "a queue for each" },
  playground: (choice) =>
    `algorithm=smoothBursty&rate=10&burstSeconds=0&traffic=three&rps=9&size=15&queue=${choice}`,
  async lanes(choice) {
    const { calls } = await simulate(fromQuery(String(this.playground?.(choice))));
    const waits = ["a", "b", "c"].map(
      (name) => `${name} ${longestWaitMs(calls.filter(({ tenant }) => tenant === name))} ms`,
    );
    const label = choice === "fair" ? "order: fairShares()" : "one queue";
    return [{ label, calls, words: `the longest waits are ${waits.join(", ")}` }];
  },
};

const OUTAGE = [3000, 6000] as const;

const redisAway: Figure = {
  title: "Three processes share six a second, and ask for ten; from 3 s to 6 s their store is away",
  seconds: 9,
  question: "whenUnavailable",
  choices: { throw: '"throw"', wait: '"wait"', local: '"local"', allow: '"allow"' },
  async lanes(choice) {
    const clock = new FakeClock();
    const store = memoryStore({ clock });
    const whenUnavailable = choice as "throw" | "wait" | "local" | "allow";
    const limiters = ["a", "b", "c"].map((tenant) => ({
      tenant,
      limiter: StoreRateLimiter.create(store, "figure", 6, {
        clock,
        whenUnavailable,
        timeoutMs: 100,
        burstSeconds: 0,
        ...(choice === "local" && { instances: 3 }),
      }),
    }));
    const calls: Call[] = [];
    for (let i = 0; i < 90; i++) {
      const { tenant, limiter } = limiters[i % 3] ?? {};
      if (i === OUTAGE[0] / 100) {
        // each limiter asks for the state after its last grant, 50 ms of real time later
        await pause(150);
        store.fail();
      }
      if (i === OUTAGE[1] / 100) {
        store.recover();
        await isBack(limiters.map(({ limiter }) => limiter));
      }
      if (tenant !== undefined && limiter !== undefined) {
        calls.push(recorded(clock, tenant, () => limiter.tryAcquire(1, 1000)));
      }
      await clock.advance(100);
    }
    await Promise.all(limiters.map(({ limiter }) => limiter.close()));
    const meanwhile = calls.filter(({ atMs }) => atMs >= OUTAGE[0] && atMs < OUTAGE[1]);
    const granted = meanwhile.filter(({ startedMs = Infinity }) => startedMs < OUTAGE[1]);
    const words = `of the ${meanwhile.length} requests that come while the store is away, ${granted.length} are granted before it is back`;
    return [{ label: `whenUnavailable: "${choice}"`, calls, words, marked: OUTAGE }];
  },
};

/** Calls a limiter; the record is filled in while the clock moves on. */
function recorded(clock: FakeClock, tenant: string, ask: () => Promise<unknown>): Call {
  const call: { -readonly [Key in keyof Call]: Call[Key] } = {
    atMs: clock.now(),
    tenant,
    startedMs: undefined,
    refusedMs: undefined,
  };
  const end = (answer: unknown) => {
    call[answer === false ? "refusedMs" : "startedMs"] = clock.now();
  };
  ask().then(end, () => end(false));
  return call;
}

/** Waits until the limiters have found the store again: by a probe, which runs in real time, or by a call. */
async function isBack(
  limiters: readonly { readonly state: string; peek(): Promise<unknown> }[],
): Promise<void> {
  await Promise.all(limiters.map((limiter) => limiter.peek()));
  const giveUpAt = performance.now() + 5000;
  while (limiters.some(({ state }) => state !== "ready")) {
    if (performance.now() > giveUpAt) throw new Error("the limiters have not found the store");
    await pause(10);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

export const FIGURES: Readonly<Record<string, Figure>> = {
  burst,
  prepay,
  algorithms,
  keys,
  processes,
  "warming-up": warmingUp,
  "double-burst": doubleBurst,
  cancel,
  fair,
  "redis-away": redisAway,
};

/** Returns what a figure shows before the reader chooses. */
export function firstChoice({ choices }: Figure): string {
  return isSlider(choices) ? String(choices.initial) : (Object.keys(choices)[0] ?? "");
}

export function isSlider(choices: Figure["choices"]): choices is Range {
  return typeof choices.min === "number";
}

function longestWaitMs(calls: readonly Call[]): number {
  return Math.round(Math.max(0, ...calls.map(({ atMs, startedMs = atMs }) => startedMs - atMs)));
}

function mostWithin(calls: readonly Call[], ms: number): number {
  const starts = calls.flatMap(({ startedMs }) => (startedMs === undefined ? [] : [startedMs]));
  const counts = starts.map((from) => starts.filter((at) => at >= from && at < from + ms).length);
  return Math.max(0, ...counts);
}
