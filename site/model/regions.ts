// The playground of regions: three regions share a limit through `RegionalLimiter`, in virtual time, while their demand
// moves or their home fails.

import { tokenBucket } from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";
import { FakeClock, memoryStore } from "smooth-limiter/testing";
import { type Field, onSlider } from "./algorithms.ts";

export const REGIONS = ["eu", "us", "asia"] as const;

export const EVENTS = {
  moves: "eu and asia exchange their demand",
  crowd: "all call three times as often",
  away: "the home is away",
  forgets: "the home forgets everything",
} as const;

export type EventKind = keyof typeof EVENTS;

/** The event begins when the first of these parts of a run ends, and ends when the second does, s. */
const PART_S = 10;
export const SECONDS = 3 * PART_S;
/** Before that the home gets to know the regions: a new one gives no parts for a lease. */
const BEFORE_S = 15;
/** The calls of so many ms are made at once. */
const TICK_MS = 25;
/** The charts have a value for each of these, ms. */
const SAMPLE_MS = 250;

export const FIELDS: readonly Field[] = [
  { name: "limit", label: "the limit, a second", min: 50, max: 500, step: 10, initial: 200 },
  { name: "eu", label: "calls a second in eu", min: 0, max: 500, step: 10, initial: 160 },
  { name: "us", label: "calls a second in us", min: 0, max: 500, step: 10, initial: 60 },
  { name: "asia", label: "calls a second in asia", min: 0, max: 500, step: 10, initial: 20 },
  { name: "reserve", label: "reserve, % of the limit", min: 0, max: 100, step: 5, initial: 10 },
  { name: "everyMs", label: "everyMs", min: 200, max: 2000, step: 100, initial: 1000 },
];

export interface RegionsSettings {
  readonly event: EventKind;
  /** Those of FIELDS. */
  readonly numbers: Readonly<Record<string, number>>;
}

/** Returns the query of the URL. */
export function toQuery({ event, numbers }: RegionsSettings): string {
  const query = new URLSearchParams({ event });
  for (const { name } of FIELDS) query.set(name, String(numbers[name]));
  return query.toString();
}

/** Reads the query of a URL. What is missing or not allowed has its initial value. */
export function fromQuery(text: string): RegionsSettings {
  const query = new URLSearchParams(text);
  const event = (Object.keys(EVENTS) as EventKind[]).find((name) => name === query.get("event"));
  const numberOf = (field: Field) => {
    const given = query.get(field.name) ?? "";
    return onSlider(field, given.trim() === "" ? undefined : Number(given));
  };
  return {
    event: event ?? "moves",
    numbers: Object.fromEntries(FIELDS.map((field) => [field.name, numberOf(field)])),
  };
}

/** What the regions had when a part of the run ended, and were granted in its last second; by region. */
export interface Part {
  readonly demands: readonly number[];
  readonly fractions: readonly number[];
  readonly granted: readonly number[];
}

export interface RegionsRun {
  readonly parts: readonly Part[];
  /** Over time, every `SAMPLE_MS`: the fractions by region, and sums of all regions since the beginning. */
  readonly fractions: readonly (readonly number[])[];
  readonly asked: readonly number[];
  readonly granted: readonly number[];
  /** The most that one limiter might have granted. */
  readonly bound: readonly number[];
  /** What all regions were granted in the whole run. */
  readonly sum: number;
  /** How many messages the home got in a second, from all regions. */
  readonly messagesPerSecond: number;
}

function demandsIn(part: number, { event, numbers }: RegionsSettings): readonly number[] {
  const demands = REGIONS.map((region) => numbers[region] ?? 0);
  if (part !== 1) return demands;
  if (event === "moves") return demands.toReversed();
  return event === "crowd" ? demands.map((demand) => 3 * demand) : demands;
}

/** Runs it, at once. */
export async function simulate(settings: RegionsSettings): Promise<RegionsRun> {
  const { event, numbers } = settings;
  const { limit = 1, reserve = 10, everyMs = 1000 } = numbers;
  // at 0 a home would not know when it was created
  const clock = new FakeClock(1000);
  const home = memoryStore({ clock });
  const policy = tokenBucket({ capacity: limit, refill: limit, everyMs: 1000 });
  const limiters = REGIONS.map((region) =>
    RegionalLimiter.create("api", policy, {
      ...{ home, region, regions: REGIONS, clock },
      ...{ reserve: reserve / 100, everyMs },
    }),
  );
  let messages = 0;
  const exchange = home.exchange.bind(home);
  home.exchange = (key, message) => {
    // with each round comes one about the home itself
    if (key.endsWith("[")) messages += 1;
    return exchange(key, message);
  };
  const due = REGIONS.map(() => 0);
  const ofRegion = REGIONS.map(() => 0);
  const run = {
    parts: [] as Part[],
    fractions: [] as number[][],
    asked: [] as number[],
    granted: [] as number[],
    bound: [] as number[],
  };
  let asked = 0;
  const tick = async (demands: readonly number[]) => {
    for (const [i, limiter] of limiters.entries()) {
      due[i] = (due[i] ?? 0) + ((demands[i] ?? 0) * TICK_MS) / 1000;
      const calls = Math.floor(due[i] ?? 0);
      due[i] = (due[i] ?? 0) - calls;
      asked += calls;
      const answers = await Promise.all(Array.from({ length: calls }, () => limiter.tryAcquire()));
      ofRegion[i] = (ofRegion[i] ?? 0) + answers.filter(Boolean).length;
    }
    await clock.advance(TICK_MS);
  };
  for (let ms = 0; ms < BEFORE_S * 1000; ms += TICK_MS) await tick(demandsIn(0, settings));
  asked = 0;
  messages = 0;
  ofRegion.fill(0);
  const sum = () => ofRegion.reduce((all, count) => all + count);
  let before: readonly number[] = [];
  for (let ms = 0; ms < SECONDS * 1000; ms += TICK_MS) {
    const part = Math.floor(ms / 1000 / PART_S);
    const inPartMs = ms % (PART_S * 1000);
    if (inPartMs === 0 && part === 1 && event === "away") home.fail();
    if (inPartMs === 0 && part === 1 && event === "forgets") home.forget();
    if (inPartMs === 0 && part === 2) home.recover();
    if (inPartMs === (PART_S - 1) * 1000) before = [...ofRegion];
    if (ms % SAMPLE_MS === 0) {
      run.fractions.push(limiters.map(({ fraction }) => fraction));
      run.asked.push(asked);
      run.granted.push(sum());
      run.bound.push(limit + (limit * ms) / 1000);
    }
    const demands = demandsIn(part, settings);
    await tick(demands);
    if (inPartMs < PART_S * 1000 - TICK_MS) continue;
    run.parts.push({
      demands,
      fractions: limiters.map(({ fraction }) => fraction),
      granted: ofRegion.map((count, i) => count - (before[i] ?? 0)),
    });
  }
  for (const limiter of limiters) await limiter.close();
  return { ...run, sum: sum(), messagesPerSecond: messages / SECONDS };
}

const WHAT: Readonly<Record<EventKind, string>> = {
  moves: "the demand of eu and asia is exchanged",
  crowd: "all call three times as often",
  away: "the home is away: parts are used until their leases end, then the reserves",
  forgets:
    "the home has forgotten everything: all keep what they have, and nobody gets more for a lease",
};

/** Says what happened, and why: a line for each part of the run. */
export function inWords(
  { event, numbers }: RegionsSettings,
  { parts, messagesPerSecond, sum }: RegionsRun,
): string {
  const lines = parts.map((part, i) => {
    const begins = ["At first", `From ${PART_S} s on ${WHAT[event]};`, `From ${2 * PART_S} s on`][
      i
    ];
    const each = REGIONS.map((region, at) => {
      const [asks, gets] = [part.demands[at] ?? 0, part.granted[at] ?? 0];
      return `${region} asks for ${asks} a second, has ${percent(part.fractions[at] ?? 0)} and is granted ${gets}`;
    });
    return `${begins} ${each.join("; ")}.`;
  });
  const { limit = 0 } = numbers;
  const most = limit + limit * SECONDS;
  return [
    `Each region decides by itself, with its part of ${limit} a second. All of them are granted ${sum} in ${SECONDS} s, of at most ${most}; the home gets ${messagesPerSecond.toFixed(1)} messages a second.`,
    ...lines,
  ].join("\n");
}

function percent(fraction: number): string {
  return `${Math.round(fraction * 100)} %`;
}

/** A module in TypeScript that does what the picture shows. */
export function toTypeScript({ numbers }: RegionsSettings): string {
  const { limit, reserve = 10, everyMs } = numbers;
  return `import { Redis } from "ioredis";
import { tokenBucket } from "smooth-limiter";
import { RegionalLimiter } from "smooth-limiter/regions";

const home = new Redis(process.env.REDIS_URL ?? ""); // all regions reach it
const policy = tokenBucket({ capacity: ${limit}, refill: ${limit}, everyMs: 1000 });

export const limiter = RegionalLimiter.create("api", policy, {
  home,
  region: process.env.REGION ?? "",
  regions: ${JSON.stringify(REGIONS).replaceAll(",", ", ")},
  reserve: ${reserve / 100},
  everyMs: ${everyMs},
});
`;
}
