/**
 * A store in the memory of this process: bytes by key, in the same form as in Redis, and `StateTransition` in
 * place of the scripts. States that have expired by the store's clock are absent.
 */
import { unixMicros } from "../ground/clock.ts";
import { type BatchId, LostReplyError } from "./batch-id.ts";
import { exchange } from "./ledger.ts";
import type { Saved } from "./state/bytes.ts";
import {
  type Answer,
  AT_ONCE,
  type CombinedReply,
  type CombinedSubrequest,
  type StateLocation,
  type StoreReply,
  type StoreRequest,
} from "./store.ts";
import { type Asked, StateTransition, type TransitionOptions } from "./transition.ts";

/** The location of a limiter of a combination. */
export interface MemoryLocation extends StateLocation {
  readonly limitKeys: readonly string[];
}

type TransitionPart = Omit<CombinedSubrequest, "counters">;

interface Kept extends Saved {
  /** By the store's clock, microseconds. */
  readonly expiresAt: number;
}

/** A limiter of a combination. */
interface Opened {
  readonly key: string;
  readonly transition: StateTransition;
}

export class TransitionStore {
  readonly #now: () => number;
  readonly #saved = new Map<string, Kept>();
  /** The records of ledgers. */
  readonly #records = new Map<string, { readonly text: string; readonly expiresAt: number }>();

  /** The texts under the keys in which limits are kept. */
  readonly limits = new Map<string, string>();

  /** @param now the store's own clock, microseconds of Unix time */
  constructor(now: () => number = unixMicros) {
    this.#now = now;
  }

  /** Returns the state under a key, unless it has expired. */
  saved(key: string): Saved | undefined {
    const kept = this.#saved.get(key);
    if (kept === undefined || kept.expiresAt > this.#now()) return kept;
    this.#saved.delete(key);
    return undefined;
  }

  /** Removes all states. */
  clear(): void {
    this.#saved.clear();
    this.#records.clear();
  }

  exchange(key: string, message: readonly string[]): string {
    const now = this.#now();
    const known = this.#records.get(key);
    const text = known !== undefined && known.expiresAt > now ? known.text : undefined;
    const { reply, record, lifeMs } = exchange(text, message, Math.floor(now / 1000));
    if (record !== undefined) {
      this.#records.set(key, { text: record, expiresAt: now + lifeMs * 1000 });
    }
    return reply;
  }

  /** Like `run` of a store, but synchronous. */
  runBatch(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now?: number,
    limitKeys: readonly string[] = [],
    batchId?: BatchId,
  ): StoreReply {
    const transition = this.#open(key, declared, now, limitKeys);
    const reply = transition.run(requests, batchId);
    this.#save({ key, transition }, batchId);
    return reply;
  }

  /**
   * Like `runTogether` of a store, but synchronous: takes permits only if all limiters grant them.
   *
   * @param batchIds one for each part, the same for parts with the same key; absent: the combination is run
   *   each time
   */
  combination(
    verb: "take" | "peek",
    parts: readonly TransitionPart[],
    batchIds: readonly BatchId[] = [],
  ): CombinedReply {
    let opened = this.#openAll(parts);
    if (opened.some(({ transition }, i) => transition.hasRun(batchIds[i])))
      throw new LostReplyError();
    const asked = parts.map((part, i) => transitionOf(opened, i).ask(part));
    const lets = (i: number) => asked[i]?.fate === "passes" || parts[i]?.isOptional === true;
    let passes = parts.every((_, i) => lets(i));
    const receipts: (readonly number[])[] = [];
    if (verb === "take" && passes) {
      // a limiter that occurs twice is asked again before the permits of its second part are taken
      const isTwice = new Set(opened.map(({ transition }) => transition)).size < opened.length;
      for (const [i, part] of parts.entries()) {
        const transition = transitionOf(opened, i);
        if (isTwice) asked[i] = transition.ask(part);
        passes = lets(i);
        if (!passes) break;
        const found = asked[i] as Asked;
        if (found.fate === "passes") receipts[i] = transition.takeAsked(part, found);
      }
      if (passes) {
        opened.forEach((one, i) => {
          this.#save(one, batchIds[i]);
        });
      } else {
        opened = this.#openAll(parts);
        receipts.length = 0;
      }
    }
    return {
      passes,
      parts: asked.map(({ wait, fate, slowest, open }, i) => {
        const transition = transitionOf(opened, i);
        const quotas = transition.quotas(open);
        const answer: Answer = { ...AT_ONCE, wait, slowest, quotas, receipts: receipts[i] ?? [] };
        return { ...transition.head(), fate, answer };
      }),
    };
  }

  /** Opens one transition for each key, also if the key occurs several times. */
  #openAll(parts: readonly TransitionPart[]): readonly Opened[] {
    const transitions = new Map<string, StateTransition>();
    const time = this.#now();
    return parts.map(({ location, declared, now }) => {
      const { key, limitKeys } = location as MemoryLocation;
      const transition = transitions.get(key) ?? this.#open(key, declared, now, limitKeys, time);
      transitions.set(key, transition);
      return { key, transition };
    });
  }

  #open(
    key: string,
    declared: string,
    now: number | undefined,
    limitKeys: readonly string[],
    time = this.#now(),
  ): StateTransition {
    const options: TransitionOptions = {
      declared,
      now: now ?? time,
      isStoreTime: now === undefined,
      saved: this.saved(key)?.bytes,
      limits: limitKeys.map((each) => this.limits.get(each)),
    };
    return new StateTransition(options);
  }

  #save({ key, transition }: Opened, batchId: BatchId | undefined): void {
    if (!transition.changed) return;
    const saved = transition.save(batchId);
    this.#saved.set(key, { ...saved, expiresAt: this.#now() + saved.lifeMs * 1000 });
  }
}

function transitionOf(opened: readonly Opened[], i: number): StateTransition {
  return (opened[i] as Opened).transition;
}
