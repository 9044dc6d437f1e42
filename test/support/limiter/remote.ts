import { Redis } from "ioredis";
import { type Clock, type Timer, toMicros } from "../../../src/ground/clock.ts";
import { RemoteLimiter } from "../../../src/remote/remote-limiter.ts";
import type { RemoteOptions } from "../../../src/remote/remote-options.ts";
import type { BatchId } from "../../../src/stores/batch-id.ts";
import type { Breaker } from "../../../src/stores/breaker.ts";
import { listPolicies, type Policies } from "../../../src/stores/policies.ts";
import {
  type RedisClient,
  type ScriptRunner,
  scriptRunner,
} from "../../../src/stores/redis/client.ts";
import { isPermanent } from "../../../src/stores/redis/permanent.ts";
import type { Store, StoreReply, StoreRequest } from "../../../src/stores/store.ts";
import { TransitionStore } from "../../../src/stores/transition-store.ts";
import { FakeClock } from "../../../src/testing/index.ts";
import { freshUrl } from "../redis/server.ts";
import { turn } from "./watch.ts";

/** How many scripts are in flight, for all limiters of this process. */
let underWay = 0;

export async function underWayWhile<T>(journey: () => Promise<T>): Promise<T> {
  underWay += 1;
  try {
    return await journey();
  } finally {
    underWay -= 1;
  }
}

/**
 * A fake clock for limiters behind a network: at each instant it waits until nothing is in flight.
 */
export class RemoteClock extends FakeClock {
  readonly #alarms = new Set<{ readonly timeMs: number }>();
  #moving: Promise<void> = Promise.resolve();

  override wakeAt(timeMs: number, wake: () => void): Timer {
    const alarm = { timeMs };
    this.#alarms.add(alarm);
    const timer = super.wakeAt(timeMs, () => {
      this.#alarms.delete(alarm);
      wake();
    });
    return {
      cancel: () => {
        this.#alarms.delete(alarm);
        timer.cancel();
      },
    };
  }

  override advance(ms: number): Promise<void> {
    const end = Math.round((this.now() + ms) * 1000);
    this.#moving = this.#moving.then(() => this.#moveTo(end));
    return this.#moving;
  }

  async #moveTo(endMicros: number): Promise<void> {
    for (;;) {
      await this.settled();
      const next = Math.min(...Array.from(this.#alarms, ({ timeMs }) => Math.ceil(timeMs * 1000)));
      const to = Math.min(endMicros, Math.max(next, Math.round(this.now() * 1000)));
      await super.advance((to - Math.round(this.now() * 1000)) / 1000);
      if (next > endMicros) return this.settled();
    }
  }

  /** Nothing is in flight, and everything that is ready to run has run. */
  async settled(): Promise<void> {
    do await turn();
    while (underWay > 0);
  }
}

/** A client of ioredis with a database of its own. */
export interface Watched {
  readonly redis: Redis;
  /** The client, observed by `RemoteClock`. */
  readonly runner: ScriptRunner;
  /** A name that no limiter has had. */
  fresh(): string;
}

let names = 0;

export async function connect(): Promise<Watched> {
  const redis = new Redis(await freshUrl());
  const plain = scriptRunner(redis as RedisClient);
  return {
    redis,
    runner: { runScript: (...args) => underWayWhile(() => plain.runScript(...args)) },
    fresh: () => `limiter ${names++}`,
  };
}

/** A store in this process whose replies can be withheld, and that can be unavailable. */
export class HandStore implements Store {
  readonly transition = new TransitionStore();
  /** The requests of each batch. */
  readonly batches: (readonly StoreRequest[])[] = [];
  /** Replies wait for `deliver`; the batches have run nevertheless. */
  held = false;
  /** How many of the next batches the client sends twice: the first replies are lost. */
  lostReplies = 0;
  /** Rejects batches with this error instead of running them. */
  away: Error | undefined;
  /** Its own clock, for requests that carry no time. */
  readonly #clock: Clock;
  readonly #undelivered: (() => void)[] = [];
  readonly breaker: Breaker | undefined;

  constructor(clock: Clock, breaker?: Breaker) {
    this.#clock = clock;
    this.breaker = breaker;
  }

  breakerOf(): Breaker | undefined {
    return this.breaker;
  }

  isPermanent(error: unknown): boolean {
    return isPermanent(error);
  }

  run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now = toMicros(this.#clock.now()),
    batchId?: BatchId,
  ): Promise<StoreReply> {
    this.batches.push(requests);
    if (this.away !== undefined) return Promise.reject(this.away);
    const run = async () => this.transition.runBatch(key, declared, requests, now, [], batchId);
    let reply = run();
    if (this.lostReplies > 0) {
      this.lostReplies -= 1;
      reply = run();
    }
    if (!this.held) return reply;
    reply.catch(() => {});
    return new Promise((resolve) => {
      this.#undelivered.push(() => resolve(reply));
    });
  }

  /** Delivers the withheld replies, and from now on all at once. */
  async deliver(): Promise<void> {
    this.held = false;
    for (const resolve of this.#undelivered.splice(0)) resolve();
    await turn();
  }

  /** The last batch for -1, the one before for -2, and so on; abbreviated. */
  sent(batch = -1): string {
    const requests = this.batches.at(batch) ?? [];
    return requests
      .map((request) => {
        switch (request.verb) {
          case "reserve":
            return `reserve ${request.amount} within ${request.longest} x${request.count}`;
          case "back":
            return `back ${request.amount} (${receiptsOf(request)})`;
          case "pause":
            return `pause ${request.micros}`;
          case "set":
            return `set ${request.numbers}`;
          case "deficit":
          case "unset":
          case "reset":
            return request.verb;
          default:
            return `${request.verb} ${request.amount}`;
        }
      })
      .join(", ");
  }
}

/** One receipt for each amount, if any of them is not 0. */
function receiptsOf({ amount, receipts }: StoreRequest & { verb: "back" }): string {
  const own = receipts.slice(0, typeof amount === "number" ? 1 : amount.length);
  return own.every((receipt) => receipt === 0) ? "" : own.join();
}

/** A limiter on a store in this process. */
export function onHand(
  policies: Policies,
  options: Partial<RemoteOptions> & { store?: HandStore } = {},
) {
  const clock = options.clock ?? new FakeClock();
  const store = options.store ?? new HandStore(clock);
  const limiter = new RemoteLimiter(store, "key", listPolicies(policies), {
    ...{
      name: "test",
      maxWaiting: Infinity,
      timeoutMs: 1000,
      whenUnavailable: "throw",
      sendsTime: true,
    },
    ...options,
    clock,
  });
  return { clock: clock as FakeClock, store, limiter };
}
