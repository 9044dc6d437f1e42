// Runs the traffic through a limiter of the library and records what happens, on any clock: in virtual
// time on FakeClock, or as it goes on in real time.

import {
  type Clock,
  fairShares,
  Limiter,
  LimiterError,
  type LocalLimiter,
  systemClock,
} from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import { type AlgorithmName, algorithmOf, type Numbers } from "./algorithms.ts";
import { epochOf, hasWeight, isFair, type Settings, type Verb } from "./settings.ts";
import { arrivalsOf, MOST_ARRIVALS, type Traffic } from "./traffic.ts";

export interface Call {
  readonly atMs: number;
  readonly tenant: string;
  /** When it was granted; undefined while it waits, or if it is refused. */
  readonly startedMs: number | undefined;
  /** When it was refused. */
  readonly refusedMs: number | undefined;
}

export interface Sample {
  readonly atMs: number;
  /** The number that decides: stored permits, tokens, or what a window has used. */
  readonly level: number;
  /** How many of each tenant wait. */
  readonly waiting: ReadonlyMap<string, number>;
}

/** What happened so far. */
export interface Series {
  readonly algorithm: AlgorithmName;
  readonly numbers: Numbers;
  readonly permits: number;
  readonly seconds: number;
  readonly calls: readonly Call[];
  readonly samples: readonly Sample[];
  /** How many requests are not sent, because only the first MOST_ARRIVALS are. */
  readonly leftOut: number;
  /** Why no request can ever pass. */
  readonly error: string | undefined;
}

/** How often the state is looked at. */
const SAMPLES = 240;

export interface Setup {
  readonly algorithm: AlgorithmName;
  readonly numbers: Numbers;
  readonly verb: Verb;
  readonly timeoutMs: number;
  readonly permits: number;
  readonly seconds: number;
  /** On a fair limiter each tenant is a share. */
  readonly fair: boolean;
  /** The weight of tenant b; the others have 1. */
  readonly weight: number;
}

export function setupOf(settings: Settings): Setup {
  const { permits = 1, timeoutMs = 0, seconds = 10, weight = 1 } = settings.common;
  const fair = isFair(settings);
  const weightOfB = hasWeight(settings) ? weight : 1;
  return { ...settings, permits, timeoutMs, seconds, fair, weight: weightOfB };
}

type Recorded = { -readonly [Key in keyof Call]: Call[Key] };

/** A limiter under observation. */
export class Run {
  readonly #setup: Setup;
  readonly #clock: Clock;
  readonly #limiter: LocalLimiter;
  /**
   * A second limiter, which is asked when the first lets a call in. So its state is what the first has
   * given out, without the calls that still wait, which `peek()` of the first includes.
   */
  readonly #mirror: LocalLimiter;
  readonly #calls: Recorded[] = [];
  readonly #samples: Sample[] = [];
  readonly #waiting = new Map<string, number>();
  readonly #leftOut: number;
  #error: string | undefined;

  constructor(setup: Setup, clock: Clock, leftOut: number) {
    this.#setup = setup;
    this.#leftOut = leftOut;
    this.#clock = clock;
    const { policy } = algorithmOf(setup.algorithm);
    this.#limiter = Limiter.create(policy(setup.numbers), {
      clock,
      order: setup.fair ? fairShares() : undefined,
    });
    this.#mirror = Limiter.create(policy(setup.numbers), { clock });
  }

  /**
   * Sends a request.
   *
   * @param caller the share of a fair limiter that it belongs to
   */
  ask(tenant: string, atMs = this.#clock.now(), caller = tenant): void {
    const call: Recorded = { atMs, tenant, startedMs: undefined, refusedMs: undefined };
    this.#calls.push(call);
    this.#count(tenant, 1);
    this.#granted(caller)
      .catch((error: unknown) => {
        if (!(error instanceof LimiterError)) throw error;
        if (error.code === "PERMITS_EXCEED_CAPACITY") this.#error = error.message;
        return false;
      })
      .then((isLetIn) => {
        this.#count(tenant, -1);
        const now = this.#clock.now();
        if (!isLetIn) {
          call.refusedMs = now;
          return;
        }
        call.startedMs = now;
        return this.#mirror.acquire(this.#setup.permits);
      })
      .catch((error: unknown) => {
        this.#error = `${error}`;
      });
  }

  async #granted(caller: string): Promise<boolean> {
    const { verb, permits, timeoutMs, fair, weight } = this.#setup;
    const share = fair ? { share: caller, weight: caller === "b" ? weight : 1 } : {};
    if (verb === "try") return this.#limiter.tryAcquire(permits);
    if (verb === "timeout") return this.#limiter.tryAcquire(permits, { timeoutMs, ...share });
    await this.#limiter.acquire(permits, share);
    return true;
  }

  #count(tenant: string, more: number): void {
    this.#waiting.set(tenant, (this.#waiting.get(tenant) ?? 0) + more);
  }

  /** Looks at the state. */
  sample(): void {
    const { algorithm, numbers } = this.#setup;
    const { most, level } = algorithmOf(algorithm);
    const value = level(numbers, this.#mirror.peek());
    this.#samples.push({
      atMs: this.#clock.now(),
      level: Math.min(most(numbers), Math.max(0, value)),
      waiting: new Map(this.#waiting),
    });
  }

  get series(): Series {
    const { algorithm, numbers, permits, seconds } = this.#setup;
    const [calls, samples, leftOut] = [this.#calls, this.#samples, this.#leftOut];
    return { algorithm, numbers, permits, seconds, calls, samples, leftOut, error: this.#error };
  }
}

/** Runs the whole traffic in virtual time, at once. */
export async function simulate(settings: Settings, setup = setupOf(settings)): Promise<Series> {
  const clock = Object.assign(new FakeClock(), { epochMs: epochOf(settings) });
  const { run, moments, actions } = prepared(settings, setup, clock);
  for (const [i, deed] of actions.entries()) {
    await clock.advance(Math.max(0, Number(moments[i]) - clock.now()));
    deed();
  }
  return run.series;
}

/**
 * Runs the traffic in real time.
 *
 * @param onChange is given what happened so far, after each request and each look at the state
 * @param onEnd is called when the time shown is over
 * @param signal ends it before
 * @returns sends a request of the user's own
 */
export function live(
  settings: Settings,
  onChange: (series: Series) => void,
  onEnd: () => void,
  signal: AbortSignal,
): (tenant: string) => void {
  const start = systemClock.now();
  const clock: Clock = {
    now: () => systemClock.now() - start,
    wakeAt: (ms, wake) => systemClock.wakeAt(ms + start, wake),
    epochMs: epochOf(settings),
  };
  const { run, moments, actions } = prepared(settings, setupOf(settings), clock);
  let next = 0;
  const go = () => {
    if (signal.aborted) return;
    while (next < actions.length && Number(moments[next]) <= clock.now()) actions[next++]?.();
    onChange(run.series);
    if (next < actions.length) clock.wakeAt(Number(moments[next]), go);
    else onEnd();
  };
  go();
  return (tenant) => run.ask(tenant);
}

/** The traffic that is chosen. */
export function trafficOf({ traffic: kind, bars, log, logFrom, common }: Settings): Traffic {
  const { rps: rate = 1, size: burst = 1, seconds = 10 } = common;
  return { kind, seconds, rate, burst, bars, log, logFrom };
}

/** A run, and what is to be done when: requests, and looks at the state between them. */
function prepared(settings: Settings, setup: Setup, clock: Clock) {
  const { seconds } = setup;
  const arrivals = arrivalsOf(trafficOf(settings));
  const run = new Run(setup, clock, Math.max(0, arrivals.length - MOST_ARRIVALS));
  const asks = arrivals.slice(0, MOST_ARRIVALS).map(({ atMs, tenant, caller }) => ({
    atMs,
    deed: () => run.ask(tenant, atMs, caller),
  }));
  const looks = Array.from({ length: SAMPLES + 1 }, (_, i) => ({
    atMs: Math.round((seconds * 1_000_000 * i) / SAMPLES) / 1000,
    deed: () => run.sample(),
  }));
  // a look comes before the requests of its instant
  const all = [...looks, ...asks].sort((a, b) => a.atMs - b.atMs);
  return { run, moments: all.map(({ atMs }) => atMs), actions: all.map(({ deed }) => deed) };
}

/** The most permits that may have started at an instant, counted from the beginning. */
export function boundAt({ algorithm, numbers, permits }: Series, atMs: number): number {
  const policy = algorithmOf(algorithm).policy(numbers);
  return policy.algorithm.bound(policy, atMs * 1000, permits);
}

/** The tenants that call, in the order of their names. */
export function tenantsOf(calls: readonly Call[]): string[] {
  return [...new Set(calls.map(({ tenant }) => tenant))].sort();
}

/** The sums of a run, in numbers. */
export interface Summary {
  readonly arrived: number;
  readonly granted: number;
  readonly refused: number;
  readonly waiting: number;
  readonly longestWaitMs: number;
  readonly mostInASecond: number;
}

/** @param untilMs counts what happened until then, as if the run had ended there */
export function summaryOf({ calls }: Series, untilMs = Infinity): Summary {
  const by = (ms: number | undefined) => ms !== undefined && ms <= untilMs;
  const arrived = calls.filter(({ atMs }) => by(atMs));
  const granted = arrived.filter(({ startedMs }) => by(startedMs));
  const refused = arrived.filter(({ refusedMs }) => by(refusedMs)).length;
  const waits = granted.map(({ atMs, startedMs = atMs }) => startedMs - atMs);
  const starts = granted.map(({ startedMs = 0 }) => startedMs).sort((a, b) => a - b);
  let from = 0;
  let mostInASecond = 0;
  for (const [i, start] of starts.entries()) {
    // half a microsecond: the sum of two instants may be off by less
    while (Number(starts[from]) <= start - 1000 + 0.0005) from += 1;
    mostInASecond = Math.max(mostInASecond, i - from + 1);
  }
  return {
    arrived: arrived.length,
    granted: granted.length,
    refused,
    waiting: arrived.length - granted.length - refused,
    longestWaitMs: Math.round(Math.max(0, ...waits) * 1000) / 1000,
    mostInASecond,
  };
}
