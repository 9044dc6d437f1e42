/**
 * The actors that a rule has blocked. A permit is a millisecond of a block: a bucket of them holds the longest block,
 * refills at one each millisecond, and an actor is blocked as long as its bucket is not full. So a block needs no timer, its
 * keys are bounded like all others, and it begins once, however many requests are refused together.
 *
 * Worked example, `{ for: 15m, times: 2, most: 24h }`: the first block takes all permits and gives those of 23:45 h back. A
 * second limiter counts blocks; with one before, 23:30 h are given back, and so on.
 */
import {
  type KeyedLimiter,
  type Limiter,
  type Policy,
  slidingLog,
  tokenBucket,
} from "smooth-limiter";
import type { RedisLimiter } from "smooth-limiter/redis";
import { chain, ignoreFailure, type MaybePromise } from "./ground/maybe-promise.ts";
import type { Block } from "./rules/rule.ts";

type Limiters = KeyedLimiter | RedisLimiter;

/** With more, blocks are as long as they get. */
const MOST_COUNTED = 64;

/** A block of an actor. */
interface Blocked {
  /** How much longer it lasts, ms. */
  readonly ms: number;
  /** Whether it begins with this request. */
  readonly begins: boolean;
}

export class Blocks {
  readonly block: Block;
  readonly #left: Limiters;
  /** How often each actor was blocked; undefined if all blocks are equally long. */
  readonly #counts: Limiters | undefined;

  /** @param open creates the limiters of all actors */
  constructor(block: Block, open: (policy: Policy, suffix: string) => Limiters) {
    const { times, mostMs } = block;
    this.block = block;
    // the numbers are in the name, so on Redis no other version of the rule changes a block that lasts
    const longest = tokenBucket({ capacity: mostMs, refill: 1, everyMs: 1 });
    this.#left = open(longest, ` block ${mostMs}`);
    if (times === 1) return;
    const counted = slidingLog({ limit: MOST_COUNTED, windowMs: 2 * mostMs });
    this.#counts = open(counted, ` blocks ${mostMs}`);
  }

  get limiters(): readonly Limiters[] {
    return [this.#left, ...(this.#counts ? [this.#counts] : [])];
  }

  /** Returns for how much longer an actor is blocked, ms. */
  leftOf(key: string): MaybePromise<number> {
    const looked = this.#left.for(key).peek(this.block.mostMs);
    return chain(looked, (look) => (look.allowed ? 0 : look.waitMs));
  }

  /** Blocks an actor, if it is not blocked. @returns undefined if there is no room for another one */
  begin(key: string): MaybePromise<Blocked | undefined> {
    const { forMs, times, mostMs } = this.block;
    const left: Limiter = this.#left.for(key);
    return chain(left.decide(mostMs), (began) => {
      if (began.waitMs === Infinity) return undefined;
      if (!began.allowed) return { ms: began.waitMs, begins: false };
      return chain(
        ignoreFailure(() => this.#count(key)),
        (before = 0) => {
          const ms = Math.min(mostMs, forMs * times ** before);
          const shorten = () => chain(ms < mostMs ? left.refund(mostMs - ms) : undefined, () => ms);
          return chain(ignoreFailure(shorten), (is = mostMs) => ({ ms: is, begins: true }));
        },
      );
    });
  }

  /** Ends a block, and forgets those before. */
  reset(key: string): MaybePromise<unknown> {
    return Promise.all([this.#left.for(key).reset(), this.#counts?.for(key).reset()]);
  }

  /** Counts a block, and keeps those before for as long. @returns how many there were before */
  #count(key: string): MaybePromise<number> {
    const counts: Limiter | undefined = this.#counts?.for(key);
    if (counts === undefined) return 0;
    return chain(counts.peek(), ({ limit, remaining }) => {
      const before = limit - remaining;
      const all = Math.min(MOST_COUNTED, before + 1);
      return chain(counts.reset(), () => chain(counts.tryAcquire(all), () => before));
    });
  }
}

export function isSameBlock(one: Block, other: Block): boolean {
  return one.forMs === other.forMs && one.times === other.times && one.mostMs === other.mostMs;
}
