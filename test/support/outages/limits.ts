// The limits that the processes of an outage share, and the messages between these processes.

import type { Watch } from "./watch.ts";

/** How many processes share the limit. */
export const WORKERS = 4;
export const RATE = 200;
/** Large enough that a second burst would show. */
export const BURST_SECONDS = 1;
export const STORE = RATE * BURST_SECONDS;
/** The most permits that one request asks for. */
export const LARGEST = 2;
/** The number of callers in a process that wait under one limit. Each has one request at a time. */
export const WAITERS = 5;
export const TIMEOUT_MS = 300;
export const MODES = ["local", "throw", "wait"] as const;
export type Mode = (typeof MODES)[number];
/**
 * The limiters whose calls without waiting are timed: two modes, and "beside", a limiter without Redis that is
 * called just before each call of "local".
 */
export type Watched = "local" | "throw" | "beside";

export interface Order {
  readonly url: string;
  readonly name: string;
  /** The client reconnects after so long without an answer, ms. */
  readonly socketTimeout: number;
  /** The client reconnects so long after it has lost a connection, ms. */
  readonly retryMs: number;
}

/** The resources that a process holds between two outages. */
export interface Holdings {
  /** Bytes in use after a garbage collection. */
  readonly heap: number;
  readonly timers: number;
  readonly listeners: number;
}

export interface Report {
  /** When the process made its first request, by the machine's monotonic clock, ms. */
  readonly bornAt: number;
  /** One entry for each permit: when it was used, by the machine's monotonic clock, ms. */
  readonly used: Readonly<Record<Mode, readonly number[]>>;
  /** How the calls went that did not wait for permits. */
  readonly watches: Readonly<Record<Watched, ReturnType<Watch["report"]>>>;
  /** Calls that never ended. */
  readonly hung: number;
  /** The longest time for which the process did not run, ms. */
  readonly stalledMs: number;
  readonly before: Holdings;
  readonly after: Holdings;
}

/** To a process: start an order, report the holdings, or end. */
export type Message = { readonly order: Order } | "hold" | "end";
/** From a process. */
export type News =
  | "here"
  | "asking"
  | { readonly isUnavailable: boolean }
  | { readonly holdings: Holdings }
  | { readonly report: Report }
  | { readonly failure: string };

/** Returns the time of a clock that all processes of a machine share, ms. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
