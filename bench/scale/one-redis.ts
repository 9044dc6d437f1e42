/**
 * Every process asks one Redis, which is the home: for each call, or ahead, with `prefetch: "auto"`.
 *
 * As in `src/remote`: a process has one batch in flight. A batch has the calls since the last one; with prefetch also a
 * refill, as many permits as are used in about 100 ms. With `whenUnavailable: "local"` and `instances` set to the number
 * of processes, each uses its equal fraction while it does not reach Redis, and charges that afterwards.
 */
import { Bucket, type MakeWay, type Way } from "./way.ts";
import { STEP_MS, type World } from "./world.ts";

const AHEAD_MS = 100;
/** A process reserves ahead when so much of a refill is left. */
const HALF = 0.5;
/** How fast the estimate of what a process uses follows. */
const FOLLOWS = 0.2;

export const oneRedis: MakeWay = (world) => new OneRedis(world, false);
export const prefetch: MakeWay = (world) => new OneRedis(world, true);

class OneRedis implements Way {
  readonly callWaits: string;
  homeCalls = 0;
  readonly nearCalls = 0;
  readonly #world: World;
  readonly #prefetches: boolean;
  readonly #home: Bucket;
  readonly #buffers: Float64Array;
  /** Permits used in a step. */
  readonly #uses: Float64Array;
  /** Calls without an answer: those of the batch in flight, and those that came since. */
  readonly #sent: Float64Array;
  readonly #kept: Float64Array;
  readonly #refills: Float64Array;
  readonly #answeredMs: Float64Array;
  /** What each process has of its own while it does not reach Redis. */
  readonly #own: (Bucket | undefined)[];
  readonly #charged: Float64Array;
  #first = 0;

  constructor(world: World, prefetches: boolean) {
    const { processes, regions } = world.size;
    this.#world = world;
    this.#prefetches = prefetches;
    const trip = regions > 1 ? `1 to ${world.roundTripMs(regions - 1)} ms` : "1 ms";
    this.callWaits = prefetches ? `0; ${trip} without a buffer` : trip;
    this.#home = new Bucket(world.rate, world.capacity);
    const array = () => new Float64Array(processes);
    this.#buffers = array();
    this.#uses = array();
    this.#sent = array();
    this.#kept = array();
    this.#refills = array();
    this.#charged = array();
    this.#answeredMs = array().fill(Infinity);
    this.#own = Array(processes).fill(undefined);
  }

  step(nowMs: number, wanted: Float64Array): number {
    this.#home.fill(STEP_MS);
    let granted = 0;
    // another process is first in each step
    this.#first = (this.#first + 7919) % wanted.length;
    for (let i = 0; i < wanted.length; i++) {
      const process = (this.#first + i) % wanted.length;
      const region = this.#world.regionOf(process);
      granted += this.#world.reachesHome(region, nowMs)
        ? this.#reached(process, nowMs, wanted[process] ?? 0, this.#world.roundTripMs(region))
        : this.#away(process, wanted[process] ?? 0);
    }
    return granted;
  }

  #reached(i: number, nowMs: number, wanted: number, tripMs: number): number {
    if (this.#own[i] !== undefined) {
      this.#own[i] = undefined;
      this.#home.draw(this.#charged[i] ?? 0);
      this.#charged[i] = 0;
    }
    let granted = this.#answer(i, nowMs);
    const buffered = Math.min(wanted, this.#buffers[i] ?? 0);
    this.#buffers[i] = (this.#buffers[i] ?? 0) - buffered;
    granted += buffered;
    this.#uses[i] = (this.#uses[i] ?? 0) + FOLLOWS * (wanted - (this.#uses[i] ?? 0));
    this.#kept[i] = (this.#kept[i] ?? 0) + wanted - buffered;
    this.#send(i, nowMs, tripMs);
    // within a step: a short trip has many answers
    return granted + this.#answer(i, nowMs + STEP_MS);
  }

  #send(i: number, nowMs: number, tripMs: number): void {
    if ((this.#answeredMs[i] ?? 0) < Infinity) return;
    const buffer = this.#buffers[i] ?? 0;
    const most = this.#prefetches ? Math.max(1, ((this.#uses[i] ?? 0) * AHEAD_MS) / STEP_MS) : 0;
    if (buffer > 2 * most) {
      this.#buffers[i] = most;
      this.#home.level = Math.min(this.#home.capacity, this.#home.level + buffer - most);
    }
    const refill = this.#prefetches && buffer < most * HALF ? most - buffer : 0;
    const calls = this.#kept[i] ?? 0;
    if (calls + refill === 0) return;
    this.#sent[i] = calls;
    this.#kept[i] = 0;
    this.#refills[i] = refill;
    this.#answeredMs[i] = nowMs + tripMs;
    // a call is a whole permit, and a fraction of one in a step is a call in some of the steps
    this.homeCalls += refill > 0 ? 1 : Math.min(calls, Math.max(1, STEP_MS / tripMs));
  }

  /** The store's answer. Calls that it refuses are over. */
  #answer(i: number, nowMs: number): number {
    if ((this.#answeredMs[i] ?? 0) > nowMs) return 0;
    this.#answeredMs[i] = Infinity;
    const granted = this.#home.draw(this.#sent[i] ?? 0);
    this.#buffers[i] = (this.#buffers[i] ?? 0) + this.#home.draw(this.#refills[i] ?? 0);
    return granted;
  }

  /** Decides in the process. */
  #away(i: number, wanted: number): number {
    const { size, rate, capacity } = this.#world;
    const { processes } = size;
    let own = this.#own[i];
    if (own === undefined) {
      const level = Math.max(0, this.#home.level / processes);
      own = new Bucket(rate / processes, capacity / processes, level);
      this.#own[i] = own;
      this.#answeredMs[i] = Infinity;
      this.#kept[i] = 0;
    }
    own.fill(STEP_MS);
    const buffered = Math.min(wanted, this.#buffers[i] ?? 0);
    this.#buffers[i] = (this.#buffers[i] ?? 0) - buffered;
    const granted = own.draw(wanted - buffered);
    this.#charged[i] = (this.#charged[i] ?? 0) + granted;
    return granted + buffered;
  }
}
