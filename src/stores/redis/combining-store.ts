/**
 * Runs requests to several limiters each with `combined.lua`. Requests that are made in one tick of the
 * event loop share a call.
 *
 * On a single server a call may use any keys. On Cluster they must be in one slot. The first CROSSSLOT
 * error shows that the server is part of a Cluster: from then on only limiters with keys that have the
 * same hash tag (the text in braces) are combined.
 */
import { show } from "../../ground/check.ts";
import {
  type BatchCounter,
  type BatchCounters,
  type BatchId,
  LostReplyError,
} from "../batch-id.ts";
import type {
  CombinedReply,
  CombinedSubrequest,
  CombiningStore,
  Fate,
  StateLocation,
} from "../store.ts";
import { decodeNotes, decodeStanding, encodeBatchId, REPEATED } from "./answers.ts";
import { explain, LIMITER_STATE } from "./explain.ts";
import type { LuaTwin } from "./lua-twin.ts";
import { onePerClient } from "./per-client.ts";
import { callScript, isCrossSlot, type Script, type ScriptRunner } from "./script-runner.ts";
import { combinedScriptFor } from "./scripts.ts";

/** The most limiters in a call: the server runs nothing else while a script runs. */
const MOST_PARTS = 128;

interface RedisLocation extends StateLocation {
  /** The twins of its policies' algorithms. */
  readonly twins: readonly LuaTwin[];
  readonly limitKeys: readonly string[];
}

/** A request that has not been sent yet. */
interface Pending {
  readonly slot: string;
  readonly verb: "take" | "peek";
  readonly parts: readonly CombinedSubrequest[];
  readonly keys: readonly string[];
  resolve(reply: CombinedReply): void;
  reject(error: unknown): void;
}

/** Returns the store of a client: one for all its limiters. */
export const combiningStoreOf = /* @__PURE__ */ onePerClient(
  "combining stores",
  (runner: ScriptRunner) => new RedisCombiningStore(runner),
);

export class RedisCombiningStore implements CombiningStore {
  readonly #runner: ScriptRunner;
  readonly #pending = new Map<Script, Pending[]>();
  #hasSlots = false;

  constructor(runner: ScriptRunner) {
    this.#runner = runner;
  }

  /** @param key the whole key, with its prefix */
  location(key: string, twins: readonly LuaTwin[], limitKeys: readonly string[]): RedisLocation {
    return { store: this, slot: this.#hasSlots ? tagOf(key) : "", key, twins, limitKeys };
  }

  runTogether(verb: "take" | "peek", parts: readonly CombinedSubrequest[]): Promise<CombinedReply> {
    const locations = parts.map(({ location }) => location as RedisLocation);
    const script = combinedScriptFor(locations.flatMap(({ twins }) => twins));
    const keys = locations.flatMap(({ key, limitKeys }) => [key, ...limitKeys]);
    const slot = String(locations[0]?.slot);
    return new Promise((resolve, reject) => {
      const pending = { slot, verb, parts, keys, resolve, reject };
      const others = this.#pending.get(script);
      if (others !== undefined) {
        others.push(pending);
      } else {
        this.#pending.set(script, [pending]);
        queueMicrotask(() => this.#sendAll(script));
      }
    });
  }

  #sendAll(script: Script): void {
    const bySlot = new Map<string, Pending[]>();
    for (const pending of this.#pending.get(script) ?? []) {
      const others = bySlot.get(pending.slot);
      if (others === undefined) bySlot.set(pending.slot, [pending]);
      else others.push(pending);
    }
    this.#pending.delete(script);
    for (const requests of bySlot.values()) {
      let batch: Pending[] = [];
      let size = 0;
      for (const request of requests) {
        if (size + request.parts.length > MOST_PARTS && batch.length > 0) {
          this.#send(script, batch);
          batch = [];
          size = 0;
        }
        batch.push(request);
        size += request.parts.length;
      }
      this.#send(script, batch);
    }
  }

  #send(script: Script, batch: readonly Pending[]): void {
    const keys = batch.flatMap((request) => request.keys);
    const numbers = new CallNumbers();
    const ids = batch.map(({ parts }) => numbers.next(parts));
    const args = batch.flatMap((request, i) => encode(request, ids[i] as readonly BatchId[]));
    callScript(this.#runner, script, keys, args).then(
      (replies) => {
        const isList = Array.isArray(replies) && replies.length === batch.length;
        const wrong = () =>
          new TypeError(`the script answered ${show(replies)} to ${batch.length} combinations`);
        for (const [i, request] of batch.entries()) {
          if (!isList) {
            request.reject(wrong());
            continue;
          }
          settle(request, replies[i], (error) => this.#refuse(request, error));
        }
        numbers.release();
      },
      (error: unknown) => {
        numbers.release();
        const isScattered = isCrossSlot(error);
        if (isScattered) this.#hasSlots = true;
        for (const request of batch) {
          // the keys of different requests may be in different slots
          if (isScattered && batch.length > 1) this.#send(script, [request]);
          else this.#refuse(request, error);
        }
      },
    );
  }

  #refuse({ keys, reject }: Pending, error: unknown): void {
    void explain(this.#runner, LIMITER_STATE, keys, error).then(reject, reject);
  }
}

/** Keys with the same tag are in the same slot; a key without a tag is treated as alone in its slot. */
function tagOf(key: string): string {
  const [, tag = ""] = /\{([^}]*)\}/.exec(key) ?? [];
  return tag === "" ? `key:${key}` : `tag:${tag}`;
}

/** Numbers the combinations of one call: with one counter for each key, also if several limiters have it. */
class CallNumbers {
  readonly #taken = new Map<string, readonly [BatchCounters, BatchCounter]>();

  /** Returns the ids of the next combination: one for each part, the same for parts with the same key. */
  next(parts: readonly CombinedSubrequest[]): readonly BatchId[] {
    const ids = new Map<string, BatchId>();
    return parts.map(({ location: { key }, counters }) => {
      const taken = this.#taken.get(key) ?? [counters, counters.take()];
      const id = ids.get(key) ?? taken[1].next();
      this.#taken.set(key, taken);
      ids.set(key, id);
      return id;
    });
  }

  release(): void {
    for (const [counters, counter] of this.#taken.values()) counters.release(counter);
  }
}

function encode({ verb, keys, parts }: Pending, ids: readonly BatchId[]): readonly string[] {
  const own = parts.flatMap((part, i) => encodePart(part, ids[i]));
  return [verb, String(keys.length), String(own.length), ...own];
}

function encodePart(
  { location, ...part }: CombinedSubrequest,
  batchId: BatchId | undefined,
): readonly string[] {
  const { twins, limitKeys } = location as RedisLocation;
  const { declared, now, longest, late, isOptional, amount } = part;
  const permits = twins.map((_, i) => (typeof amount === "number" ? amount : (amount[i] ?? 0)));
  const clock = now === undefined ? "" : String(now);
  const numbers = [longest, late, isOptional ? 1 : 0, ...permits];
  const head = [String(limitKeys.length), declared, clock, ...encodeBatchId(batchId)];
  return [...head, ...numbers.map(String)];
}

function settle(
  { parts, resolve, reject }: Pending,
  reply: unknown,
  refuse: (error: Error) => void,
): void {
  const text = String(reply);
  const [passes, ...fields] = text.slice(1).split("\t");
  if (passes === REPEATED) {
    reject(new LostReplyError());
  } else if (!text.startsWith("+")) {
    refuse(new Error(text.slice(1)));
  } else if (fields.length !== 2 * parts.length) {
    reject(new TypeError(`the script answered ${show(reply)} to ${parts.length} limiters`));
  } else {
    const replies = parts.map((_, i) =>
      decodePart(String(fields[2 * i]), String(fields[2 * i + 1])),
    );
    resolve({ passes: passes === "1", parts: replies });
  }
}

const FATES: Readonly<Record<string, Fate>> = { 0: "refused", 1: "passes", 2: "full", 3: "never" };

function decodePart(head: string, text: string): CombinedReply["parts"][number] {
  const [standing = "", ...receipts] = text.slice(2).split(":");
  const answer = { ...decodeStanding(standing), receipts: receipts.map(Number) };
  const fate = FATES[text.charAt(0)] ?? "refused";
  return { ...decodeNotes(head), fate, answer };
}
