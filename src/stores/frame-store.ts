/**
 * A store in the memory of this process: bytes by key, in the same form as in Redis, and `Frame` in
 * place of the scripts. States that have expired by the store's clock are absent.
 */
import { unixMicros } from "../ground/clock.ts";
import { type BatchId, LostReplyError } from "./batch-id.ts";
import { type Asked, Frame, type FrameOptions } from "./frame.ts";
import type { Saved } from "./state-bytes.ts";
import {
  type Answer,
  AT_ONCE,
  type CombinedReply,
  type CombinedSubrequest,
  type StateLocation,
  type StoreReply,
  type StoreRequest,
} from "./store.ts";

/** The place of a limiter of a combination. */
export interface FrameLocation extends StateLocation {
  readonly limitKeys: readonly string[];
}

type FramePart = Omit<CombinedSubrequest, "counters">;

interface Kept extends Saved {
  /** By the store's clock, microseconds. */
  readonly expiresAt: number;
}

/** A limiter of a combination. */
interface Opened {
  readonly key: string;
  readonly frame: Frame;
}

export class FrameStore {
  readonly #now: () => number;
  readonly #saved = new Map<string, Kept>();

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
    const frame = this.#open(key, declared, now, limitKeys);
    const reply = frame.run(requests, batchId);
    this.#save({ key, frame }, batchId);
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
    parts: readonly FramePart[],
    batchIds: readonly BatchId[] = [],
  ): CombinedReply {
    let opened = this.#openAll(parts);
    if (opened.some(({ frame }, i) => frame.hasRun(batchIds[i]))) throw new LostReplyError();
    const asked = parts.map((part, i) => frameOf(opened, i).ask(part));
    const lets = (i: number) => asked[i]?.fate === "passes" || parts[i]?.isOptional === true;
    let passes = parts.every((_, i) => lets(i));
    const receipts: (readonly number[])[] = [];
    if (verb === "take" && passes) {
      // a limiter that occurs twice is asked again before the permits of its second part are taken
      const isTwice = new Set(opened.map(({ frame }) => frame)).size < opened.length;
      for (const [i, part] of parts.entries()) {
        const frame = frameOf(opened, i);
        if (isTwice) asked[i] = frame.ask(part);
        passes = lets(i);
        if (!passes) break;
        const found = asked[i] as Asked;
        if (found.fate === "passes") receipts[i] = frame.takeAsked(part, found);
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
        const frame = frameOf(opened, i);
        const quotas = frame.quotas(open);
        const answer: Answer = { ...AT_ONCE, wait, slowest, quotas, receipts: receipts[i] ?? [] };
        return { ...frame.head(), fate, answer };
      }),
    };
  }

  /** Opens one frame for each key, also if the key occurs several times. */
  #openAll(parts: readonly FramePart[]): readonly Opened[] {
    const frames = new Map<string, Frame>();
    const time = this.#now();
    return parts.map(({ location, declared, now }) => {
      const { key, limitKeys } = location as FrameLocation;
      const frame = frames.get(key) ?? this.#open(key, declared, now, limitKeys, time);
      frames.set(key, frame);
      return { key, frame };
    });
  }

  #open(
    key: string,
    declared: string,
    now: number | undefined,
    limitKeys: readonly string[],
    time = this.#now(),
  ): Frame {
    const options: FrameOptions = {
      declared,
      now: now ?? time,
      isStoreTime: now === undefined,
      saved: this.saved(key)?.bytes,
      limits: limitKeys.map((each) => this.limits.get(each)),
    };
    return new Frame(options);
  }

  #save({ key, frame }: Opened, batchId: BatchId | undefined): void {
    if (!frame.changed) return;
    const saved = frame.save(batchId);
    this.#saved.set(key, { ...saved, expiresAt: this.#now() + saved.lifeMs * 1000 });
  }
}

function frameOf(opened: readonly Opened[], i: number): Frame {
  return (opened[i] as Opened).frame;
}
