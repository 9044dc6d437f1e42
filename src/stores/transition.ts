/**
 * One call of a limiter, from the bytes of its state to the bytes of its next state. It is the
 * TypeScript form of `transition.lua`, `verbs.lua` and `combined.lua`: a store that can read and write
 * bytes runs every algorithm with it, and the tests compare both forms, answers and bytes.
 *
 * 1. **Decode.** The state contains the numbers under which it was written. If the caller's code declares
 *    different numbers, the state is converted to them (`resize`), unless numbers were set at run time in
 *    place of the declared ones.
 *    If the numbers belong to other algorithms, another version of the code has written the state: an old one
 *    during a deploy, say. Each version goes on with a state of its own, and what one takes is taken from the
 *    others too, as far as they have it. So each version stays within its own bound, and all together within
 *    the sum, in any pattern. A version that is new starts with what the last writer had used. A state is
 *    dropped when the version's own grants have no effect any more.
 * 2. **Apply the clock.** Instants are microseconds after the state's base. If the clock is earlier than
 *    the last write, it has stepped back: time continues from that write, so no permits are gained. After
 *    2^32 microseconds (71 minutes) the state moves to a later base, so that fractions stay exact.
 * 3. **Run the requests**, in order and all at one instant. A rejection and a peek change nothing, and
 *    then no write is needed (`changed`).
 * 4. **Encode**, and compute the lifetime of the state: after it a new limiter is equivalent. With the
 *    store's own clock a second is added. With a clock of the caller an hour is added, because it is
 *    unknown how real time relates to that clock. Numbers set at run time are kept until they are unset.
 *
 * Example: a bursty limiter of 5 permits a second gets a request for one permit at base + 1 000 000. Its
 * state is "next free at 1 200 000, 0 stored". The answer is a wait of 200 000, the next state is "next
 * free at 1 400 000", and its lifetime is 400 ms and a second.
 */

import { type BatchId, LostReplyError } from "./batch-id.ts";
import { resolveLimits } from "./limits-elsewhere.ts";
import { codesOf, PolicyStates } from "./policy-states.ts";
import {
  decodeState,
  encodeState,
  MOST_CALLERS,
  type Saved,
  type SavedState,
  StateError,
  UNIT,
} from "./state/bytes.ts";
import {
  type Answer,
  AT_ONCE,
  type CombinedSubrequest,
  type Fate,
  type LimitNote,
  type PolicyQuota,
  REFUSED,
  type StoreReply,
  type StoreRequest,
} from "./store.ts";

const REBASE = 2 ** 32;
const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;
const LONGEST_MS = 1e15;
const MOST_SETTINGS = 32;

/** The inputs of a call. */
export interface TransitionOptions {
  /** The numbers of the policies that the caller's code declares. */
  readonly declared: string;
  /** Microseconds of Unix time. */
  readonly now: number;
  /** Whether `now` is the time of the store's own clock. */
  readonly isStoreTime: boolean;
  /**
   * If the clock is behind the last write by no more than this, microseconds, it has not stepped back:
   * there are several clocks, or the time was read before that write. Default 0.
   */
  readonly tolerance?: number;
  /** The state; undefined: there is none, or it has expired. */
  readonly saved: Uint8Array | undefined;
  /** The decoded bytes of `saved`, where they are known. */
  readonly decoded?: SavedState | undefined;
  /** The texts under the keys in which limits are kept; undefined: the key is absent. */
  readonly limits?: readonly (string | undefined)[];
}

/** The result of `ask`. */
export interface Asked {
  readonly at: number;
  readonly wait: number;
  readonly fate: Fate;
  readonly slowest: number;
  readonly open: readonly boolean[];
}

export class StateTransition {
  readonly #options: TransitionOptions;
  /** The last batch of each caller that changed something, the latest last. */
  #callers: readonly BatchId[] = [];
  readonly #states: PolicyStates;
  #inForce: string;
  /** The numbers of the last write. */
  #writtenUnder = "";
  /** The numbers set at run time, each "declared=in force". */
  #settings: readonly string[] = [];
  #notes: readonly LimitNote[] = [];
  #changed = false;

  /** @throws StateError if the bytes are not the state of a limiter */
  constructor(options: TransitionOptions) {
    const { declared, now, saved, decoded } = options;
    const base = Math.floor(now / UNIT) * UNIT;
    this.#options = options;
    this.#states = new PolicyStates(base, now - base);
    this.#inForce = this.#resolve(declared);
    if (saved === undefined) {
      this.#states.start(this.#inForce);
      return;
    }
    try {
      this.#load(decoded ?? decodeState(saved));
    } catch (error) {
      throw error instanceof StateError ? error : new StateError(saved, error);
    }
  }

  /** Whether a request has changed the state, so that it must be saved. */
  get changed(): boolean {
    return this.#changed;
  }

  /** Whether the batch, or a later one of the same caller, was run before. */
  hasRun(batchId: BatchId | undefined): boolean {
    const last = this.#lastOf(batchId);
    return last !== undefined && batchId !== undefined && batchId.number <= last;
  }

  #lastOf(batchId: BatchId | undefined): number | undefined {
    return this.#callers.find(({ caller }) => caller === batchId?.caller)?.number;
  }

  // -- decoding, and the clock --

  /** Returns the numbers with the limits that are kept in keys filled in. */
  #resolve(declared: string): string {
    const { numbers, notes, closed } = resolveLimits(declared, this.#options.limits);
    this.#notes = notes;
    this.#states.closed = closed;
    return numbers;
  }

  #load({ base, last, batchIds, numbers, settings, others, doubles }: SavedState): void {
    const { declared } = this.#options;
    this.#callers = batchIds;
    this.#writtenUnder = numbers;
    this.#settings = settings;
    const setting = settings.find((one) => one.startsWith(`${declared}=`));
    if (setting !== undefined) {
      // a number that was set at run time takes precedence over one that is kept in a key
      this.#inForce = setting.slice(declared.length + 1);
      this.#notes = [];
      this.#states.closed = new Set();
      if (codesOf(this.#inForce) !== codesOf(declared))
        throw new RangeError("a setting of other algorithms");
    }
    const fields = doubles.values();
    this.#states.load([numbers, ...others], () => {
      const { value = Number.NaN } = fields.next();
      if (Number.isNaN(value)) throw new RangeError("a field is missing, or not a number");
      return value;
    });
    const [pausedUntil = 0, ...rest] = fields;
    if (rest.length > 0 || Number.isNaN(pausedUntil)) throw new RangeError("too many fields");
    this.#states.pausedUntil = pausedUntil;
    const written = this.#applyClock(base, last);
    this.#states.use(this.#inForce, written);
  }

  /**
   * @param base the base of the instants in the state, which was written at base + last
   * @returns the instant of that write
   */
  #applyClock(base: number, last: number): number {
    const states = this.#states;
    const { now, tolerance = 0 } = this.#options;
    const behind = base + last - now;
    if (behind > 0 && behind <= tolerance) {
      // time does not go back: if it did, the next later reading would count the same time again
      states.base = base;
      states.now = last;
    } else if (behind > 0) {
      // the clock stepped back: time continues from the last write
      states.shift(states.now - last);
    } else if (now - base >= REBASE) {
      states.shift(base - states.base);
    } else {
      states.base = base;
      states.now = now - base;
    }
    return Math.min(states.now, base + last - states.base);
  }

  // -- requests --

  /**
   * Runs the requests in order.
   *
   * @throws LostReplyError if the batch was run before
   */
  run(requests: readonly StoreRequest[], batchId?: BatchId): StoreReply {
    if (this.hasRun(batchId)) throw new LostReplyError();
    const answers: Answer[] = [];
    for (const request of requests) this.#answer(request, answers);
    return Object.assign(this.head(), { answers });
  }

  /** Returns the first fields of the reply. */
  head(): Omit<StoreReply, "answers"> {
    const notes = this.#notes;
    const others = this.#states.otherAlgorithms;
    const head = { inForce: this.#inForce };
    if (notes.length === 0 && others.length === 0) return head;
    return {
      ...head,
      ...(notes.length > 0 && { notes }),
      ...(others.length > 0 && { others }),
    };
  }

  /** Adds the answers to a request. */
  #answer(request: StoreRequest, answers: Answer[]): void {
    const states = this.#states;
    switch (request.verb) {
      case "reserve":
        for (let left = request.count; left > 0; left--) answers.push(this.#reserve(request));
        return;
      case "decide":
      case "peek":
        answers.push(this.#decide(request));
        return;
      case "deficit":
        answers.push(this.#deficit());
        return;
      case "set":
        answers.push({ ...AT_ONCE, writtenUnder: this.#set(request.numbers) });
        return;
      case "unset":
        answers.push({ ...AT_ONCE, writtenUnder: this.#set(this.#options.declared) });
        return;
      case "back":
        states.giveBack(states.amounts(request.amount), request.receipts);
        break;
      case "refund":
        states.refund(states.amounts(request.amount), request.receipts);
        break;
      case "charge":
        states.take(states.now, states.amounts(request.amount));
        break;
      case "settle":
        states.settle(states.amounts(request.amount));
        break;
      case "pause":
        states.pausedUntil = Math.max(states.pausedUntil, states.now + request.micros);
        break;
      case "reset":
        states.start(this.#inForce);
        states.pausedUntil = 0;
    }
    this.#changed = true;
    answers.push(AT_ONCE);
  }

  #reserve({ amount, longest, late }: StoreRequest & { verb: "reserve" }): Answer {
    const states = this.#states;
    const permits = states.amounts(amount);
    const at = states.earliest(this.#from(late), permits);
    if (at === Infinity) return { ...AT_ONCE, wait: Infinity };
    const wait = this.#waitUntil(at);
    if (wait > longest || (wait > 0 && states.overflowing(permits) >= 0)) {
      return { ...AT_ONCE, wait: REFUSED };
    }
    return { ...AT_ONCE, wait, receipts: this.#take(at, permits) };
  }

  #decide(request: StoreRequest & { verb: "decide" | "peek" }): Answer {
    const asked = this.ask({ ...request, longest: 0 });
    const { wait, fate, slowest, open } = asked;
    if (fate === "never") return { ...AT_ONCE, wait };
    if (request.verb === "decide" && fate === "passes") this.takeAsked(request, asked);
    return { ...AT_ONCE, wait, slowest, quotas: this.#states.quotas(open) };
  }

  #deficit(): Answer {
    const { pausedUntil } = this.#states;
    return { ...AT_ONCE, wait: this.#waitUntil(pausedUntil), deficit: this.#states.deficit() };
  }

  /** @returns "=" if the last write had this caller's numbers, else the numbers it had; empty: unknown */
  #set(numbers: string): string {
    const { declared } = this.#options;
    const isOwn = this.#writtenUnder === this.#inForce;
    const reached = isOwn ? "=" : declared.includes("$") ? "" : this.#writtenUnder;
    const others = this.#settings.filter((setting) => !setting.startsWith(`${declared}=`));
    const own = numbers === declared ? [] : [`${declared}=${numbers}`];
    // settings for numbers that no code declares any more must not pile up: the latest are kept
    this.#settings = [...others, ...own].slice(-MOST_SETTINGS);
    this.#inForce = this.#resolve(numbers);
    this.#states.resize(this.#inForce);
    if (isOwn) this.#writtenUnder = this.#inForce;
    this.#changed = true;
    return reached;
  }

  #take(at: number, permits: readonly number[]): readonly number[] {
    this.#changed = true;
    return this.#states.take(at, permits);
  }

  /** Returns the earliest instant at which a caller is granted permits if its timer was `late`. */
  #from(late: number): number {
    return Math.max(this.#states.now - late, this.#states.pausedUntil);
  }

  #waitUntil(at: number): number {
    return at > this.#states.now ? Math.ceil(at - this.#states.now) : 0;
  }

  /** Returns when a request, or a part of a combination, can be granted, and whether that is within `longest`. Changes nothing. */
  ask({ amount, longest, late }: Pick<CombinedSubrequest, "amount" | "longest" | "late">): Asked {
    const states = this.#states;
    const permits = states.amounts(amount);
    const from = this.#from(late);
    const at = states.earliest(from, permits);
    const wait = this.#waitUntil(at);
    const { slowest, open } = states.alone(from, permits);
    const shut = states.refusing(permits);
    const full = shut < 0 && wait > 0 && at < Infinity ? states.overflowing(permits) : shut;
    if (full >= 0) return { at, wait: Infinity, fate: "full", slowest: full, open };
    const fate = at === Infinity ? "never" : wait <= longest ? "passes" : "refused";
    return { at, wait, fate, slowest, open };
  }

  /** @returns the receipts */
  takeAsked({ amount }: Pick<CombinedSubrequest, "amount">, { at }: Asked): readonly number[] {
    return this.#take(at, this.#states.amounts(amount));
  }

  quotas(open: readonly boolean[]): readonly PolicyQuota[] {
    return this.#states.quotas(open);
  }

  // -- encoding --

  /** @param batch the batch that has changed the state; the callers of the latest batches are saved with it */
  save(batchId?: BatchId): Saved {
    const others = this.#callers.filter(({ caller }) => caller !== batchId?.caller);
    const states = this.#states;
    const settings = this.#settings;
    const isPaused = states.pausedUntil > states.now;
    const state: SavedState = {
      base: states.base,
      last: Math.trunc(states.now),
      batchIds: batchId === undefined ? others : [...others, batchId].slice(-MOST_CALLERS),
      numbers: this.#inForce,
      settings,
      others: states.others,
      doubles: isPaused ? [...states.dump(), states.pausedUntil] : states.dump(),
    };
    const bytes = encodeState(state);
    if (settings.length > 0) return { bytes, state, lifeMs: Infinity };
    const slackMs = this.#options.isStoreTime ? SECOND_MS : HOUR_MS;
    const lifeMs = Math.ceil(states.lifetime() / 1000) + slackMs;
    return { bytes, state, lifeMs: Math.min(LONGEST_MS, lifeMs) };
  }
}
