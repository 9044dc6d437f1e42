/**
 * How even is the pace with each clock? One worker asks for 1 000 permits a second, and the deviation of each gap from 1 ms is measured.
 * `systemClock` is as even as the platform's timers; `preciseClock` reads the clock in a loop for the last milliseconds. Peers have no
 * gaps of this size to compare, as they start their calls in groups: see mean-rate.
 */
import { type Clock, preciseClock, RateLimiter, systemClock } from "smooth-limiter";
import { short } from "./lib/options.ts";
import { pace, type Wait } from "./lib/pace.ts";
import { table, target } from "./lib/report.ts";
import { quantile } from "./lib/stats.ts";

const RATE = 1000;
const INTERVAL_MS = 1000 / RATE;
const ROUNDS = short ? 3 : 15;
const FOR_MS = short ? 200 : 400;

const SYSTEM = "smooth-limiter, systemClock";
const PRECISE = "smooth-limiter, preciseClock";

const TICKS = "setInterval(1), which drifts";
const SPIN = "setImmediate until it is time";

const candidates: Record<string, Wait> = {
  [TICKS]: ticks(),
  [SPIN]: spin(),
  [SYSTEM]: paced(systemClock),
  [PRECISE]: paced(preciseClock),
};

function paced(clock: Clock): Wait {
  const limiter = RateLimiter.create(RATE, { clock, burstSeconds: 0 });
  return () => limiter.acquire();
}

/** Shows how even a bare timer is on this machine. */
function ticks(): Wait {
  let tick = () => {};
  setInterval(() => tick(), INTERVAL_MS);
  return () =>
    new Promise<void>((resolve) => {
      tick = resolve;
    });
}

/** Shows how even a pace can be on this machine. */
function spin(): Wait {
  let next = performance.now();
  return async () => {
    next = Math.max(next, performance.now() - INTERVAL_MS) + INTERVAL_MS;
    while (performance.now() < next) await new Promise(setImmediate);
  };
}

interface Evenness {
  readonly p50: number;
  readonly p99: number;
}

async function measure(wait: Wait): Promise<Evenness> {
  const grants = await pace({ wait, workers: 1, settleMs: 100, forMs: FOR_MS });
  const off = grants.slice(1).map((at, i) => Math.abs(at - (grants[i] ?? 0) - INTERVAL_MS));
  return { p50: quantile(off, 0.5), p99: quantile(off, 0.99) };
}

const rounds = new Map<string, Evenness[]>();
for (let round = 0; round < ROUNDS; round++) {
  for (const [name, wait] of Object.entries(candidates)) {
    rounds.set(name, [...(rounds.get(name) ?? []), await measure(wait)]);
  }
}
const of = (name: string, key: keyof Evenness, q: number) =>
  quantile(
    (rounds.get(name) ?? []).map((round) => round[key]),
    q,
  );
const ms = (value: number) => `${value.toFixed(3)} ms`;
table(
  ["1 000 a second, 1 worker", "p50", "p99", "p99 of the best round", "p99 of the worst round"],
  Object.keys(candidates).map((name) => [
    name,
    ms(of(name, "p50", 0.5)),
    ms(of(name, "p99", 0.5)),
    ms(of(name, "p99", 0)),
    ms(of(name, "p99", 1)),
  ]),
);
/** A missed target counts only where the bare baseline reaches it on this machine. */
function judge(name: string, bare: string, mostMs: number): void {
  const [got, possible] = [of(name, "p99", 0.5), of(bare, "p99", 0.5)];
  const reached = got <= mostMs || (possible > mostMs ? undefined : false);
  target(`p99 at most ${mostMs} ms, ${name}`, reached, `${ms(got)}, ${bare}: ${ms(possible)}`);
}
judge(SYSTEM, TICKS, 1.1);
judge(PRECISE, SPIN, 0.2);
process.exit(); // the bare timer goes on
