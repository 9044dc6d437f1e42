/**
 * Regions on the simulated clock, with a home that is far away and fails: replies that are late, lost or sent twice, a
 * home that forgets or goes back in time, clocks that drift or jump.
 */
import type { Clock, Policies, Timer } from "smooth-limiter";
import { type RegionalLimiter as Regional, RegionalLimiter } from "smooth-limiter/regions";
import type { Store } from "smooth-limiter/store";
import { FakeClock } from "smooth-limiter/testing";
import { exchange } from "../../../src/stores/ledger.ts";

/** Unix time at the start of every history. */
const START_MS = 1_750_000_000_000;

interface Saved {
  readonly text: string;
  readonly expiresMs: number;
}

/** A home in memory, with faults. */
export class Home {
  /** One way, ms. */
  latencyMs = 0;
  /** Whether messages, or replies, are lost. */
  losesMessages = false;
  losesReplies = false;
  /** What its clock shows beyond the real time, ms. */
  aheadMs = 0;
  messages = 0;
  #records = new Map<string, Saved>();
  readonly #clock: FakeClock;

  constructor(clock: FakeClock) {
    this.#clock = clock;
  }

  get nowMs(): number {
    return START_MS + this.#clock.now() + this.aheadMs;
  }

  /** Runs a message of a region. @param cut whether the region is cut off, now and when the reply is sent */
  async exchange(key: string, message: readonly string[], cut: () => boolean): Promise<string> {
    this.messages += 1;
    await this.travel();
    if (this.losesMessages || cut()) return hang();
    const known = this.#records.get(key);
    const text = known !== undefined && known.expiresMs > this.nowMs ? known.text : undefined;
    const { reply, record, lifeMs } = exchange(text, message, Math.floor(this.nowMs));
    if (record !== undefined)
      this.#records.set(key, { text: record, expiresMs: this.nowMs + lifeMs });
    if (this.losesReplies || cut()) return hang();
    await this.travel();
    return reply;
  }

  private travel(): Promise<void> {
    if (this.latencyMs === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#clock.wakeAt(this.#clock.now() + this.latencyMs, resolve);
    });
  }

  forget(): void {
    this.#records.clear();
  }

  snapshot(): ReadonlyMap<string, Saved> {
    return new Map(this.#records);
  }

  goBackTo(snapshot: ReadonlyMap<string, Saved>): void {
    this.#records = new Map(snapshot);
  }
}

function hang(): Promise<never> {
  return new Promise(() => {});
}

/** A clock that runs faster or slower than another one, by a factor. */
export class DriftingClock implements Clock {
  readonly epochMs = START_MS;
  readonly #clock: FakeClock;
  readonly #rate: number;

  constructor(clock: FakeClock, rate: number) {
    this.#clock = clock;
    this.#rate = rate;
  }

  now(): number {
    return this.#clock.now() * this.#rate;
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    return this.#clock.wakeAt(Math.ceil(Math.max(0, timeMs / this.#rate) * 1000) / 1000, wake);
  }
}

/** One region of the world. */
export interface Region {
  readonly name: string;
  readonly limiter: Regional;
  /** Whether it cannot reach the home. */
  isCut: boolean;
  /** Its messages that its client keeps until it reaches the home again; absent: the client keeps none. */
  kept: (() => void)[] | undefined;
}

export interface WorldOptions {
  readonly regions: readonly string[];
  readonly reserve?: number;
  readonly everyMs?: number;
  readonly leaseMs?: number;
  /** How fast the clock of each region runs; default 1. */
  readonly rates?: readonly number[];
}

export class World {
  readonly clock = new FakeClock();
  readonly home = new Home(this.clock);
  readonly regions: Region[];
  readonly #policies: Policies;
  readonly #options: WorldOptions;
  readonly #left: Regional[] = [];

  constructor(policies: Policies, options: WorldOptions) {
    this.#policies = policies;
    this.#options = options;
    this.regions = options.regions.map((_, i) => this.#open(i));
  }

  #open(index: number): Region {
    const { regions, rates = [], ...others } = this.#options;
    const name = regions[index] as string;
    const region: Pick<Region, "isCut" | "kept"> = { isCut: false, kept: undefined };
    const store = {
      run: () => Promise.reject(new Error("a home runs no requests")),
      exchange: async (key: string, message: readonly string[]) => {
        if (region.kept !== undefined) {
          await new Promise<void>((resolve) => region.kept?.push(resolve));
        }
        return this.home.exchange(key, message, () => region.isCut);
      },
    };
    const limiter = RegionalLimiter.create("limit", this.#policies, {
      ...others,
      home: store as Store,
      region: name,
      regions,
      clock: new DriftingClock(this.clock, rates[index] ?? 1),
    });
    return Object.assign(region, { name, limiter });
  }

  /** The region reaches the home again, and its client sends what it has kept. */
  heal(region: Region): void {
    const sent = region.kept ?? [];
    Object.assign(region, { isCut: false, kept: undefined });
    for (const send of sent) send();
  }

  /** The process of a region is killed, and another one takes its place. */
  restart(index: number): void {
    const region = this.regions[index] as Region;
    region.isCut = true;
    this.#left.push(region.limiter);
    this.regions[index] = this.#open(index);
  }

  async close(): Promise<void> {
    const all = [...this.regions.map(({ limiter }) => limiter), ...this.#left];
    const closed = Promise.all(all.map((limiter) => limiter.close()));
    // a home that does not answer is not waited for much longer
    await this.clock.advance(3000);
    await closed;
  }
}
