// The algorithms that the playground offers: their numbers, their policy, and the number that decides.

import {
  fixedWindow,
  gcra,
  leakyBucket,
  type Policy,
  type SmoothPolicy,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from "smooth-limiter";

export interface SliderRange {
  readonly label: string;
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly initial: number;
}

/** A number that the user chooses with a slider. */
export interface Field extends SliderRange {
  readonly name: string;
}

export type Numbers = Readonly<Record<string, number>>;

/** What a limiter answers to `peek()`, as far as the state is read from it. */
export interface Standing {
  readonly limit: number;
  readonly remaining: number;
  readonly waitMs: number;
  readonly resetMs: number;
}

/** A pace in permits per second, and how many permits may come at once. */
export interface Pace {
  readonly rate: number;
  readonly burst: number;
}

export interface AtOnce {
  readonly calls: number;
  readonly words: string;
}

export interface Algorithm {
  readonly label: string;
  readonly fields: readonly Field[];
  policy(numbers: Numbers): Policy;
  /** The name of the number that decides, for the chart of the state. */
  readonly state: string;
  /** The largest value of that number. */
  most(numbers: Numbers): number;
  /** That number, from the answer to `peek()`. */
  level(numbers: Numbers, standing: Standing): number;
  /** How many calls pass without a wait when many come together, and why. */
  atOnce(numbers: Numbers, level: number, permits: number): AtOnce;
  pace(numbers: Numbers): Pace;
  /** The numbers that come closest to a pace. */
  atPace(pace: Pace): Numbers;
  /** The arguments of the factory in code. */
  args(numbers: Numbers): Readonly<Record<string, number | boolean | string>>;
  /** The fields of a rule, or why no rule can say it. */
  rule(numbers: Numbers): Readonly<Record<string, number | string>> | string;
  /** Whether that rule lets requests wait. Absent: it refuses what cannot be granted now. */
  readonly ruleWaits?: true;
}

const rateField = field("rate", "permits per second", 0.5, 100, 0.5, 10);
const limitField = field("limit", "permits in a window", 1, 100, 1, 10);
const windowField = field("windowSeconds", "window, seconds", 1, 10, 1, 1);

const NO_SMOOTH_RULES = "Rules have no smooth limiter: it is for callers that wait.";

export const ALGORITHMS = {
  smoothBursty: {
    label: "smoothBursty",
    fields: [rateField, field("burstSeconds", "stored time, seconds", 0, 10, 0.5, 1)],
    policy: bursty,
    state: "stored permits",
    most: (numbers) => bursty(numbers).max,
    level: (numbers, standing) => stored(bursty(numbers), standing),
    atOnce: (_, level, permits) => {
      const covered = wholeCalls(level, permits);
      const enough = permits > 1 ? `, enough for ${covered}` : "";
      const words =
        covered === 0
          ? "nothing was stored, and one call goes in advance: the next one pays for it"
          : `${counted(level, "permit")} stored${enough}, and one call goes in advance`;
      return { calls: covered + 1, words };
    },
    pace: ({ rate = 0, burstSeconds = 0 }) => ({ rate, burst: rate * burstSeconds + 1 }),
    atPace: ({ rate, burst }) => ({ rate, burstSeconds: (burst - 1) / rate }),
    args: ({ rate = 0, burstSeconds = 0 }) => ({ permitsPerSecond: rate, burstSeconds }),
    rule: () => NO_SMOOTH_RULES,
  },
  smoothWarmingUp: {
    label: "smoothWarmingUp",
    fields: [
      rateField,
      field("warmupSeconds", "warm-up, seconds", 0.5, 10, 0.5, 2),
      field("coldFactor", "times slower when cold", 1, 10, 0.5, 3),
    ],
    policy: warmingUp,
    state: "stored permits (cold when full)",
    most: (numbers) => warmingUp(numbers).max,
    level: (numbers, standing) => stored(warmingUp(numbers), standing),
    atOnce: () => ({
      calls: 1,
      words: "idle time is not stored, it makes the limiter cold; one call goes in advance",
    }),
    pace: ({ rate = 0 }) => ({ rate, burst: 1 }),
    atPace: ({ rate }) => ({ rate, warmupSeconds: 2, coldFactor: 3 }),
    args: warmUpNumbers,
    rule: () => NO_SMOOTH_RULES,
  },
  fixedWindow: {
    label: "fixedWindow",
    fields: [limitField, windowField],
    policy: (numbers) => fixedWindow(windowed(numbers)),
    ...window("used in this window", "window"),
  },
  slidingLog: {
    label: "slidingLog",
    fields: [limitField, windowField],
    policy: (numbers) => slidingLog(windowed(numbers)),
    ...window("requests in the log", "sliding log"),
  },
  slidingWindow: {
    label: "slidingWindow",
    fields: [limitField, windowField],
    policy: (numbers) => slidingWindow(windowed(numbers)),
    ...window("used in ten buckets", "sliding window"),
  },
  tokenBucket: {
    label: "tokenBucket",
    fields: [field("capacity", "capacity, tokens", 1, 100, 1, 10), rateField],
    policy: (numbers) => tokenBucket(bucket(numbers)),
    state: "tokens in the bucket",
    most: ({ capacity = 0 }) => capacity,
    level: (_, { remaining }) => remaining,
    atOnce: held,
    pace: ({ capacity = 0, rate = 0 }) => ({ rate, burst: capacity }),
    atPace: ({ rate, burst }) => ({ capacity: burst, rate }),
    args: bucket,
    rule: ({ capacity = 0, rate = 0 }) => ({ ...perSecond(rate, "token bucket"), burst: capacity }),
  },
  gcra: {
    label: "gcra",
    fields: [rateField, field("burst", "burst beyond the one that is due", 0, 100, 1, 9)],
    policy: (numbers) => gcra(gcraNumbers(numbers)),
    state: "permits available",
    most: ({ burst = 0 }) => burst + 1,
    level: (_, { remaining }) => remaining,
    atOnce: held,
    pace: ({ rate = 0, burst = 0 }) => ({ rate, burst: burst + 1 }),
    atPace: ({ rate, burst }) => ({ rate, burst: burst - 1 }),
    args: gcraNumbers,
    rule: ({ rate = 0, burst = 0 }) => ({ ...perSecond(rate, "gcra"), burst }),
  },
  leakyBucket: {
    label: "leakyBucket",
    fields: [
      rateField,
      field("capacity", "capacity of the bucket", 0, 100, 1, 9),
      field("nodelay", "of these granted at once", 0, 100, 1, 0),
    ],
    policy: (numbers) => leakyBucket(leaky(numbers)),
    state: "permits available at once",
    most: (numbers) => 1 + leaky(numbers).nodelay,
    level: (_, { remaining }) => remaining,
    atOnce: (numbers, level, permits) => {
      const { nodelay } = leaky(numbers);
      const more = nodelay > 0 ? `, and nodelay lets ${nodelay} more go` : "";
      return { calls: wholeCalls(level, permits), words: `one leaves the bucket at once${more}` };
    },
    pace: (numbers) => ({
      rate: leaky(numbers).permitsPerSecond,
      burst: leaky(numbers).capacity + 1,
    }),
    atPace: ({ rate, burst }) => ({ rate, capacity: burst - 1, nodelay: 0 }),
    args: leaky,
    rule: (numbers) => {
      const { permitsPerSecond, capacity, nodelay } = leaky(numbers);
      return { ...perSecond(permitsPerSecond, "leaky bucket"), burst: capacity, nodelay };
    },
    ruleWaits: true,
  },
} as const satisfies Readonly<Record<string, Algorithm>>;

export type AlgorithmName = keyof typeof ALGORITHMS;

export const ALGORITHM_NAMES = Object.keys(ALGORITHMS) as AlgorithmName[];

export function algorithmOf(name: AlgorithmName): Algorithm {
  return ALGORITHMS[name];
}

/** The numbers with which every slider begins. */
export function initialNumbers(name: AlgorithmName): Numbers {
  return Object.fromEntries(algorithmOf(name).fields.map((each) => [each.name, each.initial]));
}

/** The numbers of another algorithm that mean the same pace. They may lie between the steps of its sliders. */
export function sameNumbers(from: AlgorithmName, numbers: Numbers, to: AlgorithmName): Numbers {
  return from === to ? numbers : algorithmOf(to).atPace(algorithmOf(from).pace(numbers));
}

/** The same on its sliders. */
export function sameOnSliders(from: AlgorithmName, numbers: Numbers, to: AlgorithmName): Numbers {
  const wanted = sameNumbers(from, numbers, to);
  return Object.fromEntries(
    algorithmOf(to).fields.map((each) => [each.name, onSlider(each, wanted[each.name])]),
  );
}

/** The value of the slider that is nearest to a number. */
export function onSlider({ min, max, step, initial }: Field, value: number | undefined): number {
  if (value === undefined || Number.isNaN(value)) return initial;
  const steps = Math.round((Math.min(max, Math.max(min, value)) - min) / step);
  return Number((min + steps * step).toFixed(3));
}

/** How long a permit takes when so many are stored, ms: the slope of the warm-up. */
export function warmUpIntervalMs(
  { stable, threshold, slope }: SmoothPolicy,
  stored: number,
): number {
  return (stable + Math.max(0, stored - threshold) * slope) / 1000;
}

function field(
  name: string,
  label: string,
  min: number,
  max: number,
  step: number,
  initial: number,
): Field {
  return { name, label, min, max, step, initial };
}

/** What the algorithms that count in windows have in common. */
function window(state: string, algo: string) {
  return {
    state,
    most: ({ limit = 0 }: Numbers) => limit,
    level: (_: Numbers, { limit, remaining }: Standing) => limit - remaining,
    atOnce: ({ limit = 0, windowSeconds = 1 }: Numbers, level: number, permits: number) => {
      const room = limit - level;
      const used = level > 0 ? `, and ${counted(level, "permit")} used already` : "";
      return {
        calls: wholeCalls(room, permits),
        words: `the limit is ${limit} in ${windowSeconds} s${used}`,
      };
    },
    pace: ({ limit = 0, windowSeconds = 1 }: Numbers) => ({
      rate: limit / windowSeconds,
      burst: limit,
    }),
    atPace: ({ rate, burst }: Pace) => {
      const most = Math.max(1, Math.min(windowField.max, Math.floor(limitField.max / rate)));
      const wanted = Math.min(most, Math.max(1, Math.round(burst / rate)));
      // a window admits whole requests: 7.5 in a second are 15 in two
      const windowSeconds =
        [wanted, ...Array.from({ length: most }, (_, i) => i + 1)].find((seconds) =>
          Number.isInteger(rate * seconds),
        ) ?? wanted;
      return { limit: rate * windowSeconds, windowSeconds };
    },
    args: windowed,
    rule: ({ limit = 0, windowSeconds = 1 }: Numbers) => ({
      unit: "second",
      units: windowSeconds,
      rpu: limit,
      algo,
    }),
  };
}

/** How many calls of that size a number of permits covers. */
function wholeCalls(available: number, permits: number): number {
  // the number is what a limiter reports: it may be off by a rounding
  return Math.floor(available / permits + 1e-6);
}

function counted(count: number, unit: string): string {
  const shown = Math.round(count * 100) / 100;
  return `${shown} ${unit}${shown === 1 ? " was" : "s were"}`;
}

/** What algorithms with a bucket of permits have in common. */
function held(_: Numbers, level: number, permits: number): AtOnce {
  return {
    calls: wholeCalls(level, permits),
    words: `${counted(level, "permit")} in the bucket`,
  };
}

function windowed({ limit = 0, windowSeconds = 1 }: Numbers) {
  return { limit, windowMs: windowSeconds * 1000 };
}

function bursty({ rate = 0, burstSeconds = 0 }: Numbers): SmoothPolicy {
  return smoothBursty({ permitsPerSecond: rate, burstSeconds });
}

/** The policy of a limiter that warms up, with its store and slope. */
export function warmingUp(numbers: Numbers): SmoothPolicy {
  return smoothWarmingUp(warmUpNumbers(numbers));
}

function warmUpNumbers({ rate = 0, warmupSeconds = 1, coldFactor = 3 }: Numbers) {
  return { permitsPerSecond: rate, warmupMs: warmupSeconds * 1000, coldFactor };
}

/** Without a store there is no way to be short of it: the limiter is full whenever it is free. */
function stored({ max, coolDown }: SmoothPolicy, { resetMs, waitMs }: Standing): number {
  return max === 0 ? 0 : Math.max(0, max - ((resetMs - waitMs) * 1000) / coolDown);
}

function bucket({ capacity = 0, rate = 0 }: Numbers) {
  return { capacity, refill: rate, everyMs: 1000 };
}

function gcraNumbers({ rate = 0, burst = 0 }: Numbers) {
  return { limit: rate, periodMs: 1000, burst };
}

function leaky({ rate = 0, capacity = 0, nodelay = 0 }: Numbers) {
  return { permitsPerSecond: rate, capacity, nodelay: Math.min(capacity, nodelay) };
}

function perSecond(rate: number, algo: string) {
  return { unit: "second", rpu: rate, algo };
}
