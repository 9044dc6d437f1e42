/**
 * A simulated server and its clients, in virtual time. The server has workers and one queue, first in, first out.
 * Each client calls it through a limiter of its own. Nothing waits for real time, so a minute takes milliseconds.
 */
import { type Clock, ConcurrencyLimiter, type Lease, type LimiterOptions } from "smooth-limiter";

export type Limit = Parameters<typeof ConcurrencyLimiter.create>[0];

/** What a client calls, and when. Times are ms of virtual time. */
export interface Scene {
  readonly durationMs: number;
  /** How many workers the server has at a time. */
  readonly workers: (atMs: number) => number;
  /** How long a worker needs for a call that starts then; `random` is uniform in [0, 1). */
  readonly serviceMs: (random: () => number, atMs: number) => number;
  /**
   * For each client: the calls that it would like to start by then, in all. `Infinity`: it always has
   * another one.
   */
  readonly clients: readonly ((atMs: number) => number)[];
  /** How many calls may wait at the server; it refuses further ones at once. Default `Infinity`. */
  readonly queue?: number;
  /** A call that has taken as long is given up, ms; the server goes on with it. Default `Infinity`. */
  readonly timeoutMs?: number;
}

/** One call that has ended. */
export interface ModelCall {
  readonly client: number;
  readonly startedMs: number;
  readonly endedMs: number;
  readonly isOverload: boolean;
}

export interface ModelRun {
  readonly calls: readonly ModelCall[];
  /** The limits of the clients, every 100 ms. */
  readonly limits: readonly (readonly number[])[];
  readonly limiters: readonly ConcurrencyLimiter[];
}

interface Job {
  readonly client: number;
  readonly lease: Lease;
  readonly startedMs: number;
  isOver: boolean;
}

/** How often clients look for new calls, and the number of workers is read, ms. */
const TICK_MS = 5;
const SAMPLE_MS = 100;
/** The network, to the server and back, ms. */
const NETWORK_MS = 0.5;

export function runScene(
  scene: Scene,
  limit: Limit | undefined,
  seed = 1,
  options: LimiterOptions = {},
): ModelRun {
  const random = randomFrom(seed);
  const events = new Events();
  const clock: Clock = { now: () => events.now, wakeAt: () => ({ cancel() {} }) };
  const limiters = scene.clients.map(() =>
    ConcurrencyLimiter.create(limit ?? Number.MAX_SAFE_INTEGER, { ...options, clock }),
  );
  const calls: ModelCall[] = [];
  const limits: number[][] = [];
  const started = scene.clients.map(() => 0);
  const queue: Job[] = [];
  let busy = 0;

  const end = (job: Job, isOverload: boolean) => {
    if (job.isOver) return;
    job.isOver = true;
    const { client, startedMs, lease } = job;
    calls.push({ client, startedMs, endedMs: events.now, isOverload });
    if (isOverload) lease.overloaded();
    else lease.release();
    startCalls(client);
  };
  const work = () => {
    while (busy < scene.workers(events.now)) {
      const job = queue.shift();
      if (job === undefined) return;
      busy += 1;
      events.after(scene.serviceMs(random, events.now), () => {
        busy -= 1;
        events.after(NETWORK_MS, () => end(job, false));
        work();
      });
    }
  };
  const arrive = (job: Job) => {
    if (queue.length >= (scene.queue ?? Infinity)) {
      events.after(NETWORK_MS, () => end(job, true));
      return;
    }
    queue.push(job);
    work();
  };
  const startCalls = (client: number) => {
    const wanted = Math.floor(scene.clients[client]?.(events.now) ?? 0);
    while ((started[client] as number) < wanted) {
      const lease = limiters[client]?.tryAcquire();
      if (lease === undefined) return;
      started[client] = (started[client] as number) + 1;
      const job: Job = { client, lease, startedMs: events.now, isOver: false };
      events.after(NETWORK_MS, () => arrive(job));
      const { timeoutMs = Infinity } = scene;
      if (timeoutMs < Infinity) events.after(timeoutMs, () => end(job, true));
    }
  };
  const tick = () => {
    for (const client of scene.clients.keys()) startCalls(client);
    work();
    events.after(TICK_MS, tick);
  };
  const sample = () => {
    limits.push(limiters.map((limiter) => limiter.limit));
    events.after(SAMPLE_MS, sample);
  };
  tick();
  sample();
  events.runUntil(scene.durationMs);
  return { calls, limits, limiters };
}

/** A seeded generator of numbers in [0, 1): xorshift. */
export function randomFrom(seed: number): () => number {
  let state = (seed * 2_654_435_761) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 2 ** 32;
  };
}

interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly run: () => void;
}

/** A heap of events. Those of one instant run in the order in which they were added. */
class Events {
  now = 0;
  #count = 0;
  readonly #heap: Event[] = [];

  after(ms: number, run: () => void): void {
    const heap = this.#heap;
    const event = { atMs: this.now + ms, order: this.#count++, run };
    let i = heap.length;
    heap.push(event);
    while (i > 0) {
      const up = (i - 1) >> 1;
      const parent = heap[up] as Event;
      if (!isBefore(event, parent)) break;
      heap[i] = parent;
      i = up;
    }
    heap[i] = event;
  }

  runUntil(endMs: number): void {
    for (let next = this.#pop(); next !== undefined && next.atMs <= endMs; next = this.#pop()) {
      this.now = next.atMs;
      next.run();
    }
  }

  #pop(): Event | undefined {
    const heap = this.#heap;
    const [first] = heap;
    const last = heap.pop();
    if (last === undefined || last === first) return first;
    let i = 0;
    for (;;) {
      const left = 2 * i + 1;
      const a = heap[left];
      const b = heap[left + 1];
      const child = a && b && isBefore(b, a) ? left + 1 : left;
      const next = heap[child];
      if (next === undefined || !isBefore(next, last)) break;
      heap[i] = next;
      i = child;
    }
    heap[i] = last;
    return first;
  }
}

function isBefore(a: Event, b: Event): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
