import { type FakeServer, fakeServer, status } from "./fake-server.ts";

/**
 * How a server enforces its limit. The algorithms are independent of the limiters'. Returns in how
 * many ms a request is granted that comes now, at this many permits a second; 0 if it is granted
 * at once.
 */
type Admit = (now: number, perSecond: number) => number;

/** A counter that is set to 0 on the hour, or at another fixed time. */
export function fixedWindow(windowMs: number): Admit {
  let began = -Infinity;
  let used = 0;
  return (now, perSecond) => {
    const begins = Math.floor(now / windowMs) * windowMs;
    if (begins > began) used = 0;
    began = begins;
    if (used + 1 > (perSecond * windowMs) / 1000) return began + windowMs - now;
    used++;
    return 0;
  };
}

/** A limit for every window of `windowMs`. */
export function slidingWindow(windowMs: number): Admit {
  const times: number[] = [];
  return (now, perSecond) => {
    const limit = Math.floor((perSecond * windowMs) / 1000);
    const [oldest = -Infinity] = times.slice(-limit);
    if (times.length >= limit && oldest > now - windowMs) return oldest + windowMs - now;
    times.push(now);
    return 0;
  };
}

/** A bucket of the permits of this many seconds. */
export function bucket(seconds: number): Admit {
  let tokens = Infinity;
  let at = 0;
  return (now, perSecond) => {
    tokens = Math.min(seconds * perSecond, tokens + ((now - at) * perSecond) / 1000);
    at = now;
    if (tokens < 1) return ((1 - tokens) * 1000) / perSecond;
    tokens--;
    return 0;
  };
}

export interface SilentServer extends FakeServer {
  perSecond: number;
  /** The share of its allowance that it granted between two instants in ms. */
  used(from: number, to: number): number;
  /** When it refused between two instants, and the pause that it asked for, ms. */
  refused(from: number, to: number): Refusal[];
}

export interface Refusal {
  readonly at: number;
  readonly pauseMs: number;
}

/** A server that reports nothing except, in whole seconds, when to retry. */
export function silentServer(admit: Admit, perSecond: number, wayMs: () => number): SilentServer {
  const refusals: Refusal[] = [];
  const fake = fakeServer((_, now) => {
    const waitMs = admit(now, server.perSecond);
    if (waitMs <= 0) return status(200)();
    const seconds = Math.ceil(waitMs / 1000);
    refusals.push({ at: now, pauseMs: seconds * 1000 });
    return status(429, { "retry-after": `${seconds}` })();
  }, wayMs);
  const server: SilentServer = {
    ...fake,
    perSecond,
    used(from, to) {
      const seen = fake.seen.filter(({ at, status }) => status === 200 && at >= from && at < to);
      return seen.length / ((server.perSecond * (to - from)) / 1000);
    },
    refused: (from, to) => refusals.filter(({ at }) => at >= from && at < to),
  };
  return server;
}

/**
 * Counts the bursts. A burst is all refusals until the rate is measured: a refusal
 * before requests were granted for four times the last pause is part of the same burst.
 */
export function burstsOf(refusals: readonly Refusal[]): number {
  const begins = ({ at }: Refusal, i: number) => {
    const before = refusals[i - 1];
    return before === undefined || at - before.at > 5 * before.pauseMs;
  };
  return refusals.filter(begins).length;
}

/** Counts the refusals of requests that had waited for as long as the server asked. */
export function roundsOf(refusals: readonly Refusal[]): number {
  let until = -Infinity;
  return refusals.filter(({ at, pauseMs }) => {
    if (at < until) return false;
    until = at + pauseMs;
    return true;
  }).length;
}
