/**
 * Runs the requests of a limiter in one script call: `transition.lua` with the twins of the algorithms that
 * the limiter uses.
 */
import { show } from "../../ground/check.ts";
import type { Amount } from "../../ground/permits.ts";
import { type BatchId, LostReplyError } from "../batch-id.ts";
import type { Breaker } from "../breaker.ts";
import type { ProcessCounter } from "../process-counter.ts";
import {
  type Answer,
  AT_ONCE,
  type StateLocation,
  type Store,
  type StoreReply,
  type StoreRequest,
} from "../store.ts";
import { decodeNotes, decodeNumber, decodeStanding, encodeBatchId, REPEATED } from "./answers.ts";
import { combiningStoreOf, type RedisCombiningStore } from "./combining-store.ts";
import type { BreakerOf } from "./connection.ts";
import { explain, LIMITER_STATE } from "./explain.ts";
import type { LuaTwin } from "./lua-twin.ts";
import { isPermanent } from "./permanent.ts";
import { type ProcessCounters, processCountersOf } from "./process-counters.ts";
import { coalescerOf, type KeyScript, type ScriptCoalescer } from "./script-coalescer.ts";
import type { ScriptRunner } from "./script-runner.ts";
import { scriptFor } from "./scripts.ts";

export class RedisStore implements Store {
  readonly #runner: ScriptRunner;
  readonly #coalescer: ScriptCoalescer;
  readonly #combining: RedisCombiningStore;
  readonly #processes: ProcessCounters;
  readonly #twins: readonly LuaTwin[];
  readonly #prefix: string;
  /** The scripts for batches that only reserve, and for batches with other verbs. */
  readonly #reserving: KeyScript;
  readonly #anything: KeyScript;
  readonly #policies: number;
  readonly #limitKeys: readonly string[];
  readonly #breakerOf: BreakerOf | undefined;

  /**
   * @param twins the Lua twins of the algorithms, one for each policy
   * @param limitKeys the keys in which operators keep limits
   * @param breakerOf returns the breaker of all limiters on the server of a key
   */
  constructor(
    runner: ScriptRunner,
    prefix: string,
    twins: readonly LuaTwin[],
    limitKeys: readonly string[] = [],
    breakerOf?: BreakerOf,
  ) {
    this.#breakerOf = breakerOf;
    this.#limitKeys = limitKeys;
    this.#runner = runner;
    this.#coalescer = coalescerOf(runner);
    this.#combining = combiningStoreOf(runner);
    this.#processes = processCountersOf(runner);
    this.#twins = twins;
    this.#prefix = prefix;
    this.#reserving = scriptFor(twins, false);
    this.#anything = scriptFor(twins, true);
    this.#policies = twins.length;
  }

  breakerOf(key: string): Breaker | undefined {
    return this.#breakerOf?.(this.#prefix + key);
  }

  isPermanent(error: unknown): boolean {
    return isPermanent(error);
  }

  run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
    batchId?: BatchId,
  ): Promise<StoreReply> {
    let script = this.#reserving;
    let args = now === undefined ? this.#encodeAcquire(declared, requests) : undefined;
    if (args === undefined) {
      args = [declared, now === undefined ? "" : String(now)];
      for (const request of requests) {
        if (request.verb !== "reserve") script = this.#anything;
        this.#encode(request, args);
      }
    }
    const fullKey = this.#prefix + key;
    return new Promise((resolve, reject) => {
      const replied = (reply: unknown) => {
        try {
          resolve(decodeReply(declared, requests, reply));
        } catch (error) {
          reject(error);
        }
      };
      const failed = (error: unknown) => {
        const keys = [fullKey, ...this.#limitKeys];
        explain(this.#runner, LIMITER_STATE, keys, error).then(reject, reject);
      };
      const pending = { script, key: fullKey, args, own: encodeBatchId(batchId), replied, failed };
      this.#coalescer.send(pending, this.#limitKeys);
    });
  }

  processes(key: string): ProcessCounter {
    return this.#processes.counter(this.#prefix + key);
  }

  location(key: string): StateLocation {
    return this.#combining.location(this.#prefix + key, this.#twins, this.#limitKeys);
  }

  #encode(request: StoreRequest, args: string[]): void {
    args.push(request.verb);
    switch (request.verb) {
      case "reserve":
        args.push(String(request.count), String(request.longest), String(request.late));
        this.#encodeAmount(request.amount, args);
        break;
      case "decide":
      case "peek":
        args.push(String(request.late));
        this.#encodeAmount(request.amount, args);
        break;
      case "back":
        this.#encodeAmount(request.amount, args);
        this.#encodeReceipts(request.receipts, 2 * this.#policies, args);
        break;
      case "refund":
        this.#encodeAmount(request.amount, args);
        this.#encodeReceipts(request.receipts, this.#policies, args);
        break;
      case "charge":
      case "settle":
        this.#encodeAmount(request.amount, args);
        break;
      case "pause":
        args.push(String(request.micros));
        break;
      case "set":
        args.push(request.numbers);
        break;
      case "deficit":
      case "unset":
      case "reset":
        break;
    }
  }

  #encodeReceipts(receipts: readonly number[] | undefined, count: number, args: string[]): void {
    for (let i = 0; i < count; i++) args.push(String(receipts?.[i] ?? 0));
  }

  /** Returns the arguments in their shortest form, for the most common batch; undefined for all others. */
  #encodeAcquire(declared: string, requests: readonly StoreRequest[]): string[] | undefined {
    const [request] = requests;
    if (requests.length !== 1 || this.#policies !== 1 || request?.verb !== "reserve")
      return undefined;
    const { count, longest, late, amount } = request;
    if (count !== 1 || longest !== Infinity || late !== 0) return undefined;
    const args = [declared];
    if (amount !== 1) this.#encodeAmount(amount, args);
    return args;
  }

  #encodeAmount(amount: Amount, args: string[]): void {
    if (typeof amount === "number") args.push(String(amount));
    else for (let i = 0; i < this.#policies; i++) args.push(String(amount[i] ?? 0));
  }
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

function decodeReply(
  declared: string,
  requests: readonly StoreRequest[],
  reply: unknown,
): StoreReply {
  if (reply === REPEATED) throw new LostReplyError();
  const all = typeof reply === "string" ? reply : "";
  const end = all.indexOf("\t");
  const answers: Answer[] = [];
  const decoded: Writable<StoreReply> = { inForce: declared, answers };
  if (
    !(end < 0 ? decodeHot(all, requests, answers) : decodeAll(all, end, requests, decoded, answers))
  ) {
    throw new TypeError(`the script answered ${show(reply)} to ${requests.length} requests`);
  }
  return decoded;
}

/** Decodes the reply of the hot path: its numbers are the declared ones, and it has no notes. */
function decodeHot(text: string, requests: readonly StoreRequest[], answers: Answer[]): boolean {
  const [request] = requests;
  if (requests.length !== 1 || request?.verb !== "reserve" || !/^[\dn]/.test(text)) return false;
  return decodeGrants(text, request.count, answers);
}

/** Decodes the reply of the transition, with the answers from `end` on. */
function decodeAll(
  all: string,
  end: number,
  requests: readonly StoreRequest[],
  decoded: Writable<StoreReply>,
  answers: Answer[],
): boolean {
  const { inForce, ...noted } = decodeNotes(all.slice(0, end));
  if (inForce !== "") decoded.inForce = inForce;
  Object.assign(decoded, noted);
  // for a short text `split` costs more than the rest of the decoding
  const rest = all.slice(end + 1);
  const texts = rest.includes("\t") ? rest.split("\t", requests.length + 1) : [rest];
  if (texts.length !== requests.length) return false;
  return requests.every((request, i) => {
    const text = String(texts[i]);
    if (request.verb === "reserve") return decodeGrants(text, request.count, answers);
    answers.push(decodeAnswer(request.verb, text));
    return true;
  });
}

function decodeAnswer(verb: StoreRequest["verb"], text: string): Answer {
  switch (verb) {
    case "decide":
    case "peek":
      return decodeStanding(text);
    case "deficit":
      return decodeDeficit(text);
    case "set":
    case "unset":
      return { ...AT_ONCE, writtenUnder: text };
    default:
      return AT_ONCE;
  }
}

/** Caches the last grant: most grants have the same text as the previous one. */
let lastText = "0";
let lastGrant = AT_ONCE;

/** Decodes grants: equal neighbours are one text, "*" and their number. Returns whether they are `count`. */
function decodeGrants(texts: string, count: number, answers: Answer[]): boolean {
  const end = answers.length + count;
  for (const text of texts.includes(" ") ? texts.split(" ", count + 1) : [texts]) {
    const star = text.indexOf("*");
    const grant = knownGrant(star < 0 ? text : text.slice(0, star));
    const times = star < 0 ? 1 : Number(text.slice(star + 1));
    if (Number.isNaN(grant.wait) || !Number.isInteger(times)) return false;
    if (answers.length + times > end) return false;
    for (let i = 0; i < times; i++) answers.push(grant);
  }
  return answers.length === end;
}

function knownGrant(text: string): Answer {
  if (text !== lastText) {
    lastText = text;
    lastGrant = decodeGrant(text);
  }
  return lastGrant;
}

/** A wait, and receipts. */
const GRANT = /^(?:\d[\d.e+-]*|no|never|inf)(?::-?(?:\d[\d.e+-]*|inf))*$/;

/** @returns a wait of NaN for a text that is no grant: an empty one, say, must not be a wait of 0 */
function decodeGrant(text: string): Answer {
  const { receipts, slowest, quotas, deficit } = AT_ONCE;
  if (!GRANT.test(text)) return { ...AT_ONCE, wait: NaN };
  const end = text.indexOf(":");
  if (end < 0) return { wait: decodeNumber(text), receipts, slowest, quotas, deficit };
  const taken = text.slice(end + 1).split(":");
  const wait = decodeNumber(text.slice(0, end));
  return { wait, receipts: taken.map(Number), slowest, quotas, deficit };
}

function decodeDeficit(text: string): Answer {
  const values = text.split(" ").map(decodeNumber);
  return { ...AT_ONCE, wait: values.at(-1) ?? NaN, deficit: values.slice(0, -1) };
}
