// What the processes of an outage share, and what they say to each other.

import type { Watch } from "./watch.ts";

/** How many processes share the limit. */
export const WORKERS = 4;
export const RATE = 200;
/** Large enough for a second burst to be seen. */
export const BURST_SECONDS = 1;
export const STORE = RATE * BURST_SECONDS;
/** A request is for so many permits at the most. */
export const LARGEST = 2;
/** Of a process, who wait under one limit. Each asks for one request at a time. */
export const WAITERS = 5;
export const TIMEOUT_MS = 300;
export const MODES = ["local", "throw", "wait"] as const;
export type Mode = (typeof MODES)[number];
/** Whose quick calls are timed: of two modes, and of a limiter in the process, beside those of "local". */
export type Watched = "local" | "throw" | "beside";

export interface Order {
  readonly url: string;
  readonly name: string;
  /** After so long without an answer the client looks for another connection, ms. */
  readonly socketTimeout: number;
  /** After so long it looks for another connection when it has lost one, ms. */
  readonly retryMs: number;
}

/** What a process holds, between one outage and another. */
export interface Holdings {
  /** Bytes, after a collection. */
  readonly heap: number;
  readonly timers: number;
  readonly listeners: number;
}

export interface Report {
  /** When it asked first, by the machine's monotonic clock, ms. */
  readonly bornAt: number;
  /** When a permit was used, ms of the machine's monotonic clock, one entry for each. */
  readonly used: Readonly<Record<Mode, readonly number[]>>;
  /** How the quick calls went that did not wait for permits. */
  readonly watches: Readonly<Record<Watched, ReturnType<Watch["report"]>>>;
  /** Calls without an end. */
  readonly hung: number;
  /** The longest for which the process did not run, ms. */
  readonly stalledMs: number;
  readonly before: Holdings;
  readonly after: Holdings;
}

/** To a process: do this, tell what you hold, or come to an end. */
export type Message = { readonly order: Order } | "hold" | "end";
/** From it. */
export type News =
  | "here"
  | "asking"
  | { readonly isAway: boolean }
  | { readonly holdings: Holdings }
  | { readonly report: Report }
  | { readonly failure: string };

/** The clock that is one for all processes of a machine. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
