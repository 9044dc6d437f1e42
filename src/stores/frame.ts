/**
 * `frame.lua` and `verbs.lua` once more, line by line, over the TypeScript algorithms and in this
 * process: what Redis has to answer, and the bytes that it has to save.
 */
import type { Algorithm, Policy } from "../algorithms/algorithm.ts";
import { readPolicies } from "../algorithms/index.ts";
import { toMillis } from "../clock.ts";
import type { Amount } from "../permits.ts";
import {
  type Answer,
  AT_ONCE,
  type CombinedPart,
  type CombinedReply,
  type CombiningStore,
  type Fate,
  type LimitNote,
  type Place,
  type PolicyQuota,
  REFUSED,
  type Store,
  type StoreReply,
  type StoreRequest,
} from "./store.ts";
import { LostReplyError, type Trip } from "./trip.ts";

const UNIT = 2 ** 24;
const REBASE = 2 ** 32;
const HOUR_MS = 3_600_000;
const LONGEST_MS = 1e15;
/** base, last, the length of the numbers, and how many callers follow. */
const HEAD_BYTES = 11;
const CALLER_BYTES = 12;
const MOST_CALLERS = 64;

/** What is saved under a key. */
export interface Saved {
  readonly bytes: Uint8Array;
  /** How long it is kept, ms; undefined: for ever. */
  readonly lifeMs: number | undefined;
}

interface FramePlace extends Place {
  readonly limitKeys: readonly string[];
}

export class FrameStore implements Store, CombiningStore {
  readonly saved = new Map<string, Saved>();

  /** What the keys hold in which limits are kept. */
  readonly limits = new Map<string, string>();

  place(key: string, limitKeys: readonly string[] = []): FramePlace {
    return { store: this, slot: "", key, limitKeys };
  }

  async runTogether(verb: "take" | "peek", parts: readonly CombinedPart[]): Promise<CombinedReply> {
    return this.combination(verb, parts);
  }

  /** `combined.lua` once more. */
  combination(verb: "take" | "peek", parts: readonly CombinedPart[], trip?: Trip): CombinedReply {
    const open = () => {
      const frames = new Map<string, Frame>();
      return parts.map(({ place, declared, now }) => {
        const { key, limitKeys } = place as FramePlace;
        const kept = limitKeys.map((each) => this.limits.get(each));
        if (now === undefined) throw new TypeError("this store has no clock of its own");
        const frame = frames.get(key) ?? new Frame(declared, now, this.saved.get(key)?.bytes, kept);
        frames.set(key, frame);
        return { key, frame };
      });
    };
    let opened = open();
    if (opened.some(({ frame }) => frame.hasRun(trip))) throw new LostReplyError();
    const frameOf = (i: number) => (opened[i] as { frame: Frame }).frame;
    const asked = parts.map((part, i) => frameOf(i).ask(part));
    const lets = (i: number) => asked[i]?.fate === "passes" || parts[i]?.isOptional;
    let passes = parts.every((_, i) => lets(i));
    const receipts: (readonly number[])[] = [];
    if (verb === "take" && passes) {
      const isTwice = new Set(opened.map(({ frame }) => frame)).size < opened.length;
      for (const [i, part] of parts.entries()) {
        if (isTwice) asked[i] = frameOf(i).ask(part);
        passes = lets(i) === true;
        if (!passes) break;
        if (asked[i]?.fate === "passes") receipts[i] = frameOf(i).takeAsked(part, asked[i]);
      }
      if (passes) {
        for (const { key, frame } of opened) {
          if (frame.changed) this.saved.set(key, frame.save(trip));
        }
      } else {
        opened = open();
        receipts.length = 0;
      }
    }
    return {
      passes,
      parts: asked.map((one, i) => {
        const frame = frameOf(i);
        const { wait, slowest, open } = one;
        const quotas = frame.quotas(open);
        const answer = { ...AT_ONCE, wait, slowest, quotas, receipts: receipts[i] ?? [] };
        const { inForce, notes } = frame;
        return { inForce, ...(notes.length > 0 && { notes }), fate: one.fate, answer };
      }),
    };
  }

  async run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
    trip?: Trip,
  ): Promise<StoreReply> {
    if (now === undefined) throw new TypeError("this store has no clock of its own");
    return this.trip(key, declared, requests, now, [], trip);
  }

  /** @param kept what the keys hold in which limits are kept; undefined: it is absent */
  trip(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    clock: number,
    kept: readonly (string | undefined)[] = [],
    trip?: Trip,
  ): StoreReply {
    const frame = new Frame(declared, clock, this.saved.get(key)?.bytes, kept);
    if (frame.hasRun(trip)) throw new LostReplyError();
    const answers = requests.flatMap((request) => frame.answer(request));
    if (frame.changed) this.saved.set(key, frame.save(trip));
    const { inForce, notes } = frame;
    return notes.length === 0 ? { inForce, answers } : { inForce, notes, answers };
  }
}

interface Part {
  readonly algorithm: Algorithm;
  policy: Policy;
  state: unknown;
}

/** What a combination has found out about one of its limiters. */
interface Asked {
  readonly at: number;
  readonly wait: number;
  readonly fate: Fate;
  readonly slowest: number;
  readonly open: readonly boolean[];
}

/** Each is saved as a double; a list as its length and then what is in it. */
type Fields = Record<string, number | readonly number[]>;

class Frame {
  readonly #declared: string;
  #base: number;
  #now: number;
  #held = 0;
  changed = false;
  inForce: string;
  /** Of limits that are kept in keys: those that are 0, and those that are none. */
  notes: LimitNote[] = [];
  #writtenUnder = "";
  readonly #kept: readonly (string | undefined)[];
  /** The numbers set at run time, each after a tab. */
  #settings: readonly string[] = [];
  /** The last trip of each caller that changed something, the latest last. */
  #trips: readonly Trip[] = [];
  #parts: Part[] = [];

  constructor(
    declared: string,
    clock: number,
    saved: Uint8Array | undefined,
    kept: readonly (string | undefined)[],
  ) {
    this.#declared = declared;
    this.#kept = kept;
    this.inForce = this.#resolve(declared);
    this.#base = Math.floor(clock / UNIT) * UNIT;
    this.#now = clock - this.#base;
    if (saved === undefined) this.#start();
    else this.#load(clock, saved);
  }

  #resolve(numbers: string): string {
    this.notes = [];
    const lines = numbers.split("\n").map((line, policy) =>
      line.replace(/\$(\S+?)@(\d+)/g, (_, fallback: string, which: string) => {
        const kept = this.#kept[Number(which) - 1];
        const limit = kept?.trim() ? Number(kept) : Number.NaN;
        if (limit > 0 && limit < Infinity) return `${limit}`;
        if (kept !== undefined && !this.notes.some((note) => note.policy === policy)) {
          this.notes.push({ policy, ignored: limit === 0 ? undefined : kept });
        }
        return fallback;
      }),
    );
    return lines.join("\n");
  }

  /** Of the policies whose limit is 0, the first that is asked. */
  #refusing(permits: readonly number[]): number {
    return this.#parts.findIndex((_, i) => this.#isClosed(i) && (permits[i] ?? 0) > 0);
  }

  #isClosed(index: number): boolean {
    return this.notes.some(({ policy, ignored }) => policy === index && ignored === undefined);
  }

  #start(): void {
    this.#parts = readPolicies(this.inForce).map((policy) => {
      const { algorithm } = policy;
      const state = algorithm.start(policy, this.#now);
      algorithm.align?.(policy, state, this.#base);
      return { algorithm, policy, state };
    });
  }

  #load(clock: number, saved: Uint8Array): void {
    const view = new DataView(saved.buffer, saved.byteOffset, saved.byteLength);
    const then = view.getUint32(0, true) * UNIT;
    const last = view.getUint32(4, true);
    checkReadable(saved);
    this.#trips = readTrips(saved);
    const [text, end] = readNumbers(saved);
    const [numbers = "", ...settings] = text.split("\t");
    this.#settings = settings;
    this.#writtenUnder = numbers;
    const setting = settings.find((one) => one.startsWith(`${this.#declared}=`));
    if (setting !== undefined) {
      this.inForce = setting.slice(this.#declared.length + 1);
      this.notes = [];
    }
    const before = readPolicies(numbers);
    const after = readPolicies(this.inForce);
    if (
      before.length !== after.length ||
      before.some(({ algorithm }, i) => algorithm !== after[i]?.algorithm)
    ) {
      this.#start();
      return;
    }
    let from = end;
    this.#parts = before.map((policy) => {
      const { algorithm } = policy;
      const next = () => {
        from += 8;
        return view.getFloat64(from - 8, true);
      };
      const state = algorithm.start(policy, 0) as Fields;
      for (const [field, value] of Object.entries(state)) {
        state[field] = typeof value === "number" ? next() : Array.from({ length: next() }, next);
      }
      return { algorithm, policy, state };
    });
    if (from < saved.byteLength) this.#held = view.getFloat64(from, true);
    let shift = 0;
    if (clock < then + last) {
      shift = this.#now - last;
    } else if (clock - then >= REBASE) {
      shift = then - this.#base;
    } else {
      this.#base = then;
      this.#now = clock - then;
    }
    if (shift !== 0) {
      for (const { algorithm, state } of this.#parts) algorithm.shift(state, shift);
      this.#held += shift;
    }
    if (numbers !== this.inForce) this.#resize(this.inForce);
  }

  hasRun(trip: Trip | undefined): boolean {
    const last = this.#trips.find(({ caller }) => caller === trip?.caller);
    return last !== undefined && trip !== undefined && trip.number <= last.number;
  }

  #resize(numbers: string): void {
    this.inForce = numbers;
    readPolicies(numbers).forEach((policy, i) => {
      const part = this.#parts[i] as Part;
      part.algorithm.resize(policy, part.state, this.#now, part.policy);
      part.algorithm.align?.(policy, part.state, this.#base);
      part.policy = policy;
    });
  }

  #earliest(from: number, permits: readonly number[]): number {
    if (this.#refusing(permits) >= 0) return Infinity;
    let at = from;
    for (;;) {
      let agreed = at;
      this.#parts.forEach(({ algorithm, policy, state }, i) => {
        const asked = permits[i] ?? 0;
        if (asked > 0) agreed = algorithm.earliest(policy, state, agreed, asked);
      });
      if (Number.isNaN(agreed))
        throw new Error(`NaN: ${JSON.stringify(this.#parts)} ${this.#held} ${from} ${permits}`);
      if (agreed === at) return at;
      at = agreed;
    }
  }

  #take(at: number, permits: readonly number[]): readonly number[] {
    this.changed = true;
    const receipts = this.#parts.map(({ algorithm, policy, state }, i) => {
      const asked = permits[i] ?? 0;
      if (asked === 0) return 0;
      return algorithm.take(policy, state, at, asked) + (algorithm.dated ? this.#base : 0);
    });
    if (at > this.#now && !(this.#parts.length === 1 && this.#parts[0]?.algorithm.dated)) {
      const tails = this.#parts.map((part, i) =>
        part.algorithm.dated || (permits[i] ?? 0) === 0 ? 0 : this.#tail(part),
      );
      receipts.push(...tails);
    }
    // what Lua's `in_order` says: one policy is first in, first out by itself
    const inOrder = this.#parts.length === 1;
    if (at > this.#now && !inOrder && at > this.#held) this.#held = at;
    return receipts.some((receipt) => receipt !== 0) ? receipts.map(positiveZero) : [];
  }

  #tail({ algorithm, policy, state }: Part): number {
    return Math.floor(algorithm.earliest(policy, state, this.#now, 5e-324)) + this.#base;
  }

  answer(request: StoreRequest): Answer[] {
    switch (request.verb) {
      case "reserve":
        return Array.from({ length: request.count }, () => this.#reserve(request));
      case "decide":
      case "peek":
        return [this.#tell(request)];
      case "owed":
        return [this.#owed()];
      case "back":
        this.#back(this.#amounts(request.amount), request.receipts);
        break;
      case "refund":
        this.#refund(this.#amounts(request.amount));
        break;
      case "charge":
        this.#take(this.#now, this.#amounts(request.amount));
        break;
      case "settle":
        this.#settle(this.#amounts(request.amount));
        break;
      case "pause":
        this.#held = Math.max(this.#held, this.#now + request.micros);
        this.changed = true;
        break;
      case "set":
        return [{ ...AT_ONCE, writtenUnder: this.#set(request.numbers) }];
      case "unset":
        return [{ ...AT_ONCE, writtenUnder: this.#set(this.#declared) }];
      case "reset":
        this.#start();
        this.#held = 0;
        this.changed = true;
    }
    return [AT_ONCE];
  }

  #settle(permits: readonly number[]): void {
    this.#parts.forEach(({ algorithm, policy, state }, i) => {
      const used = permits[i] ?? 0;
      if (used === 0) return;
      if (algorithm.settle) algorithm.settle(policy, state, this.#now, used);
      else algorithm.take(policy, state, this.#now, used);
    });
    this.changed = true;
  }

  #amounts(amount: Amount): number[] {
    return this.#parts.map((_, i) => (typeof amount === "number" ? amount : (amount[i] ?? 0)));
  }

  #reserve({ amount, longest, late }: StoreRequest & { verb: "reserve" }): Answer {
    const permits = this.#amounts(amount);
    const at = this.#earliest(Math.max(this.#now - late, this.#held), permits);
    const wait = at > this.#now ? Math.ceil(at - this.#now) : 0;
    if (at === Infinity) return { ...AT_ONCE, wait: Infinity };
    if (wait > longest || (wait > 0 && this.#overflowing(permits) >= 0)) {
      return { ...AT_ONCE, wait: REFUSED };
    }
    return { ...AT_ONCE, wait, receipts: this.#take(at, permits) };
  }

  #overflowing(permits: readonly number[]): number {
    return this.#parts.findIndex(({ algorithm, policy, state }, i) => {
      const asked = permits[i] ?? 0;
      return asked > 0 && algorithm.overflows?.(policy, state, this.#now, asked);
    });
  }

  /** When they could go, and whether that is soon enough. */
  ask({ amount, longest, late }: CombinedPart): Asked {
    const permits = this.#amounts(amount);
    const from = Math.max(this.#now - late, this.#held);
    const at = this.#earliest(from, permits);
    const wait = at > this.#now ? Math.ceil(at - this.#now) : 0;
    const { slowest, open } = this.#alone(from, permits);
    const shut = this.#refusing(permits);
    const full = shut < 0 && wait > 0 && at < Infinity ? this.#overflowing(permits) : shut;
    if (full >= 0) return { at, wait: Infinity, fate: "full", slowest: full, open };
    const fate = at === Infinity ? "never" : wait <= longest ? "passes" : "refused";
    return { at, wait, fate, slowest, open };
  }

  takeAsked({ amount }: CombinedPart, { at }: Asked): readonly number[] {
    return this.#take(at, this.#amounts(amount));
  }

  #alone(from: number, permits: readonly number[]): { slowest: number; open: boolean[] } {
    let slowest = 0;
    let latest = -Infinity;
    const open = this.#parts.map(({ algorithm, policy, state }, i) => {
      const asked = permits[i] ?? 0;
      const at = asked > 0 ? algorithm.earliest(policy, state, from, asked) : -Infinity;
      if (at > latest) {
        slowest = i;
        latest = at;
      }
      return at <= this.#now && !(this.#isClosed(i) && asked > 0);
    });
    return { slowest, open };
  }

  #tell({ verb, amount, late }: StoreRequest & { verb: "decide" | "peek" }): Answer {
    const from = Math.max(this.#now - late, this.#held);
    const permits = this.#amounts(amount);
    const at = this.#earliest(from, permits);
    const shut = this.#refusing(permits);
    if (at === Infinity && shut < 0) return { ...AT_ONCE, wait: Infinity };
    const { slowest, open } = this.#alone(from, permits);
    const full = at > this.#now && shut < 0 ? this.#overflowing(permits) : shut;
    const wait = full >= 0 ? Infinity : Math.max(0, Math.ceil(at - this.#now));
    if (verb === "decide" && at <= this.#now) this.#take(at, permits);
    return { ...AT_ONCE, wait, slowest: full >= 0 ? full : slowest, quotas: this.quotas(open) };
  }

  /** @param open which policies alone would let the permits go */
  quotas(open: readonly boolean[]): PolicyQuota[] {
    return this.#parts.map(({ algorithm, policy, state }, i): PolicyQuota => {
      const allowed = open[i] === true;
      const own = algorithm.quota(policy, state, this.#now);
      const quota = this.#isClosed(i) ? { ...own, limit: 0, remaining: 0 } : own;
      const { remaining, resetMs } = quota;
      const resetHeldMs = Math.max(resetMs, toMillis(this.#held - this.#now));
      return this.#held > this.#now
        ? { ...quota, allowed, remaining: 0, resetMs: resetHeldMs }
        : {
            ...quota,
            allowed,
            remaining: positiveZero(remaining),
            resetMs: positiveZero(resetMs),
          };
    });
  }

  #owed(): Answer {
    const owed = this.#parts.map(({ algorithm, policy, state }) =>
      algorithm.owed(policy, state, this.#now),
    );
    return { ...AT_ONCE, wait: Math.max(0, Math.ceil(this.#held - this.#now)), owed };
  }

  #back(permits: readonly number[], receipts: readonly number[]): void {
    this.#parts.forEach((part, i) => {
      const { algorithm, policy, state } = part;
      const given = permits[i] ?? 0;
      const receipt = receipts[i] ?? 0;
      if (given === 0) return;
      if (algorithm.dated) {
        const at = receipt === 0 ? undefined : receipt - this.#base;
        algorithm.giveBack(policy, state, this.#now, given, at);
        return;
      }
      const upTo = this.#tail(part);
      const last = upTo <= this.#now + this.#base || upTo === receipts[this.#parts.length + i];
      if (last) algorithm.giveBack(policy, state, this.#now, given, receipt);
      else algorithm.keep?.(policy, state, given);
    });
    this.changed = true;
  }

  #refund(permits: readonly number[]): void {
    this.#parts.forEach(({ algorithm, policy, state }, i) => {
      const given = permits[i] ?? 0;
      if (given > 0) algorithm.giveBack(policy, state, this.#now, given);
    });
    this.changed = true;
  }

  #set(numbers: string): string {
    const own = this.#writtenUnder === this.inForce;
    const reached = own ? "=" : this.#declared.includes("$") ? "" : this.#writtenUnder;
    const declared = `${this.#declared}=`;
    this.#settings = this.#settings.filter((setting) => !setting.startsWith(declared));
    if (numbers !== this.#declared) this.#settings = [...this.#settings, declared + numbers];
    this.#resize(this.#resolve(numbers));
    if (own) this.#writtenUnder = this.inForce;
    this.changed = true;
    return reached;
  }

  /** @param trip that has changed it */
  save(trip: Trip | undefined): Saved {
    const others = this.#trips.filter(({ caller }) => caller !== trip?.caller);
    const trips = trip === undefined ? others : [...others, trip].slice(-MOST_CALLERS);
    const numbers = new TextEncoder().encode([this.inForce, ...this.#settings].join("\t"));
    const doubles: number[] = [];
    let life = this.#held - this.#now;
    for (const { algorithm, policy, state } of this.#parts) {
      for (const value of Object.values(state as Fields)) {
        doubles.push(...(typeof value === "number" ? [value] : [value.length, ...value]));
      }
      life = Math.max(life, algorithm.lifetime(policy, state, this.#now));
    }
    if (this.#held > this.#now) doubles.push(this.#held);
    const headBytes = HEAD_BYTES + CALLER_BYTES * trips.length;
    const bytes = new Uint8Array(headBytes + numbers.length + 8 * doubles.length);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, this.#base / UNIT, true);
    view.setUint32(4, this.#now, true);
    view.setUint16(8, numbers.length, true);
    view.setUint8(10, trips.length);
    trips.forEach(({ caller, number }, i) => {
      const at = HEAD_BYTES + CALLER_BYTES * i;
      bytes.set(new TextEncoder().encode(caller), at);
      view.setUint32(at + 8, number, true);
    });
    bytes.set(numbers, headBytes);
    doubles.forEach((double, i) => {
      view.setFloat64(headBytes + numbers.length + 8 * i, double, true);
    });
    const lifeMs = Math.min(LONGEST_MS, Math.ceil(life / 1000) + HOUR_MS);
    return { bytes, lifeMs: this.#settings.length === 0 ? lifeMs : undefined };
  }
}

/** Numbers leave Lua as text in which 0 has no sign. */
function positiveZero(number: number): number {
  return number === 0 ? 0 : number;
}

function checkReadable(bytes: Uint8Array): void {
  const isState =
    bytes.byteLength >= HEAD_BYTES + CALLER_BYTES &&
    Number(bytes[HEAD_BYTES - 1]) <= MOST_CALLERS &&
    /^[a-z][\dI]/.test(readNumbers(bytes)[0]);
  if (!isState) throw new Error("the key holds a value that no limiter has written");
}

function readTrips(bytes: Uint8Array): Trip[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: view.getUint8(10) }, (_, i) => {
    const at = HEAD_BYTES + CALLER_BYTES * i;
    const caller = new TextDecoder().decode(bytes.subarray(at, at + 8));
    return { caller, number: view.getUint32(at + 8, true) };
  });
}

/** The text of the numbers, and where it ends. */
function readNumbers(bytes: Uint8Array): [string, number] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const from = HEAD_BYTES + CALLER_BYTES * view.getUint8(10);
  const end = from + view.getUint16(8, true);
  return [new TextDecoder().decode(bytes.subarray(from, end)), end];
}

/** What the bytes say, to be read by people. */
export function describe(bytes: Uint8Array | null | undefined): string {
  if (!bytes) return "nothing";
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [text, end] = readNumbers(bytes);
  const doubles: number[] = [];
  for (let from = end; from + 8 <= bytes.byteLength; from += 8) {
    doubles.push(view.getFloat64(from, true));
  }
  const head = `base ${view.getUint32(0, true)}, last ${view.getUint32(4, true)}`;
  const trips = readTrips(bytes).map(({ caller, number }) => `${caller} ${number}`);
  const told = doubles.map((double) => (Object.is(double, -0) ? "-0" : double));
  return `${head}, [${trips}], ${JSON.stringify(text)}, ${told.join(" ")}`;
}
