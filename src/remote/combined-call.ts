/**
 * One script asks several remote limiters on one server. This file has the call, its deadline, and the
 * behaviour while the server is away.
 *
 * A reply after the deadline counts as long as no member's strategy has decided what happens instead;
 * later, the permits that it grants are given back to each limiter by their receipts. While the server is
 * away each member's `whenUnavailable` decides: if any member has "throw", the call fails; otherwise, if
 * any has "wait", the call is sent again when the server is back; otherwise the fallbacks in this process
 * answer: all are checked first, then the permits are taken from all.
 */

import { decision, passing } from "../api/decision.ts";
import {
  ForeignMember,
  LocalTaker,
  type Look,
  lookAtOnce,
  type Part,
  type RateMember,
  reportRefusal,
  ScatteredError,
  type Steps,
  type Terms,
  takeAtOnce,
} from "../api/participant.ts";
import { GaveUpError } from "../api/timeout.ts";
import { AbortGroups } from "../ground/abort-groups.ts";
import { show } from "../ground/check.ts";
import { LONGEST_TIMEOUT_MS } from "../ground/clock.ts";
import { oncePerProcess } from "../ground/copies.ts";
import { noAnswer, StoreUnavailableError } from "../ground/errors.ts";
import { nextTurn } from "../ground/macrotask-gate.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import type {
  CombinedPart,
  CombinedReply,
  CombiningStore,
  StateLocation,
} from "../stores/store.ts";
import { type Here, StoreCall } from "./permit-request.ts";
import type { RemoteQueue } from "./remote-queue.ts";
import { RemoteReservation } from "./remote-reservation.ts";

const stepsOf = /* @__PURE__ */ oncePerProcess(
  "remote steps",
  () => new WeakMap<CombiningStore, Steps>(),
);

interface RemoteMember extends RateMember {
  readonly queue: RemoteQueue;
}

/** @param enter of the fair calls in front of the queue */
export function remoteMember(queue: RemoteQueue, enter: RateMember["enter"]): RateMember {
  const store = queue.link.place?.store;
  if (store === undefined) return new ForeignMember(queue, enter);
  const steps = stepsOf.get(store) ?? stepsOn(store);
  stepsOf.set(store, steps);
  const { meter, policyState, inForce } = queue.parts;
  const member: RemoteMember = {
    queue,
    steps,
    enter,
    // it changes when the server turns out to be part of a Cluster
    get slot() {
      return String(queue.link.place?.slot);
    },
    refused: (permits, look) => reportRefusal(meter, policyState.amount(permits), look),
    full: (permits, { decision }) => {
      const amount = policyState.amount(permits);
      return decision.limit === 0 ? inForce.excess(amount) : queue.full(amount);
    },
  };
  return member;
}

const signals = /* @__PURE__ */ new AbortGroups<(reason: unknown) => void>((stop, reason) =>
  stop(reason),
);

function stepsOn(store: CombiningStore): Steps {
  const ask = (verb: Verb) => async (parts: readonly Part[], terms: Terms) =>
    new CombinedCall(store, verb, parts as readonly Part<RemoteMember>[], terms).looks();
  return { look: ask("peek"), take: ask("take") };
}

type Verb = "peek" | "take";
type PartReply = CombinedReply["parts"][number];

/** The request to one of the limiters. */
interface MemberRequest {
  readonly queue: RemoteQueue;
  readonly permits: Permits;
  readonly amount: Amount;
  readonly longestMs: number;
  readonly isOptional: boolean;
}

class CombinedCall {
  readonly #store: CombiningStore;
  readonly #verb: Verb;
  readonly #asked: readonly MemberRequest[];
  readonly #signal: AbortSignal | undefined;
  /** When the caller stops waiting for the store, by `performance.now()`. */
  readonly #endMs: number;

  constructor(
    store: CombiningStore,
    verb: Verb,
    parts: readonly Part<RemoteMember>[],
    { signal, timeoutMs = Infinity }: Terms,
  ) {
    this.#store = store;
    this.#verb = verb;
    this.#asked = parts.map(({ member: { queue }, permits, longestMs, isOptional }) => {
      queue.checkOpen();
      const amount = queue.parts.policyState.amount(permits);
      return { queue, permits, amount, longestMs, isOptional };
    });
    refuseContradictions(this.#asked);
    this.#signal = signal;
    this.#endMs = performance.now() + timeoutMs;
  }

  async looks(): Promise<readonly Look[]> {
    const [refusal] = this.#asked.flatMap(({ queue }) => queue.link.refusal() ?? []);
    let looks = refusal && (await this.#instead(refusal));
    // the store is back: the call is sent, even if some members have not noticed yet
    while (looks === undefined) looks = await this.#try();
    return looks;
  }

  /** Resolves to undefined when the store is back after an outage: the call is to be sent again. */
  async #try(): Promise<readonly Look[] | undefined> {
    const timeoutMs = Math.min(...this.#asked.map(({ queue }) => queue.parts.timeoutMs));
    let isOpen = true;
    const failed = (cause: unknown, isOverdue: boolean) => {
      for (const { queue } of this.#asked) queue.link.failed([], cause, isOverdue);
      const name = String(this.#asked[0]?.queue.parts.name);
      return this.#instead(new StoreUnavailableError(name, timeoutMs, cause));
    };
    const sentAt = this.#asked.map(({ queue }) => queue.parts.line.now());
    const run = async () => this.#store.runTogether(this.#verb, this.#asked.map(partOf));
    const sent = run().then(
      (reply) => this.#read(reply, sentAt, isOpen),
      (cause: unknown) => {
        if (!isOpen) return undefined;
        if (this.#isScattered) throw new ScatteredError(cause);
        return failed(cause, false);
      },
    );
    let timer: ReturnType<typeof setTimeout> | undefined;
    const overdue = new Promise<readonly Look[] | undefined>((resolve) => {
      const expire = () => resolve(failed(noAnswer(timeoutMs), true));
      timer = setTimeout(expire, Math.min(LONGEST_TIMEOUT_MS, timeoutMs));
    });
    try {
      return await this.#until(Promise.race([sent, overdue]));
    } finally {
      isOpen = false;
      clearTimeout(timer);
    }
  }

  /** Returns the outcome of the promise, unless the signal or the time-out ends the wait before. */
  #until<T>(promise: Promise<T>, endMs = Infinity): Promise<T> {
    const signal = this.#signal;
    if (signal === undefined && endMs === Infinity) return promise;
    return new Promise((resolve, reject) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const leave = () => {
        clearTimeout(timer);
        if (signal !== undefined) signals.delete(signal, stop);
      };
      const stop = (reason: unknown) => {
        leave();
        reject(reason);
      };
      if (endMs < Infinity) {
        const leftMs = Math.max(0, endMs - performance.now());
        // answers in this process may be due in this turn: see MacrotaskGate
        const expire = () => nextTurn(() => stop(new GaveUpError()));
        timer = setTimeout(expire, Math.min(LONGEST_TIMEOUT_MS, leftMs));
      }
      if (signal?.aborted) stop(signal.reason);
      else if (signal !== undefined) signals.add(signal, stop);
      promise.then(resolve, reject).finally(leave);
    });
  }

  // -- a reply --

  /** @param isOpen whether the call still counts; if not, the permits are given back */
  #read(reply: CombinedReply, sentAt: readonly number[], isOpen: boolean): readonly Look[] {
    const parts = reply.parts as readonly PartReply[];
    this.#asked.forEach(({ queue }, i) => {
      queue.link.replied(parts[i] as PartReply);
    });
    return this.#asked.flatMap((one, i) => {
      const { queue, amount, isOptional } = one;
      const part = parts[i] as PartReply;
      const isTaken = this.#verb === "take" && reply.passes && part.fate === "passes";
      if (isOpen) {
        if (part.fate === "never" && !isOptional) throw queue.parts.inForce.excess(amount);
        return lookOf(one, part, isTaken ? sentAt[i] : undefined);
      }
      if (isTaken) queue.returnToStore(amount, part.answer).catch(() => {});
      return [];
    });
  }

  /** Whether the limiters are in several slots, by the last reply. */
  get #isScattered(): boolean {
    return new Set(this.#asked.map(({ queue }) => queue.link.place?.slot)).size > 1;
  }

  // -- while the store is away --

  /**
   * What the members' strategies do when the call has failed: reject; wait for the store, and resolve to
   * undefined; or answer in this process: all are checked, then the permits are taken from all.
   */
  async #instead(error: unknown): Promise<readonly Look[] | undefined> {
    try {
      const asking = Promise.all(this.#asked.map(({ queue }) => fallbackOf(queue, error)));
      const heres = await this.#until(asking, this.#endMs);
      if (!heres.every((here) => here !== undefined)) return undefined;
      const parts = this.#asked.map((one, i) => ({
        ...one,
        member: takerOn(heres[i] as Here, one),
      }));
      return this.#verb === "peek" ? lookAtOnce(parts) : takeAtOnce(parts);
    } catch (reason) {
      for (const { queue } of this.#asked) queue.parts.stats.failed(reason);
      throw reason;
    }
  }
}

function partOf({ queue, amount, longestMs, isOptional }: MemberRequest): CombinedPart {
  const longest = queue.hasRoom(amount) ? Math.round(longestMs * 1000) : 0;
  const place = queue.link.place as StateLocation;
  return { place, ...queue.link.combinedPart(), amount, longest, isOptional };
}

/** @param sentAt when the call was sent, if permits were taken */
function lookOf(request: MemberRequest, { fate, answer }: PartReply, sentAt?: number): Look {
  const { queue, amount, longestMs } = request;
  const { wait, slowest, quotas } = answer;
  const { names } = queue.parts.policyState;
  const passes = fate === "passes";
  if (sentAt === undefined) {
    const isFull = fate === "full" || (!passes && wait <= longestMs * 1000);
    return { decision: decision(names, quotas, amount, wait, slowest), passes, isFull };
  }
  const reservation = reservationOf(request);
  queue.strategy.answered(reservation, answer);
  reservation.accept(answer, sentAt);
  const after = passing(names, quotas, amount);
  return {
    decision: { ...after, waitMs: reservation.waitMs },
    passes,
    taken: { undo: () => reservation.undo(), reservation },
  };
}

function reservationOf({ queue, permits, amount }: MemberRequest): RemoteReservation {
  return new RemoteReservation(queue, { permits, amount, longest: undefined, signal: undefined });
}

/**
 * Rejects if the limiter's calls fail with the error; resolves to undefined when its store is back, or to
 * its fallback at once.
 */
function fallbackOf({ link }: RemoteQueue, error: unknown): Promise<Here | undefined> {
  const call = new StoreCall<Here | undefined>({
    request: () => ({ verb: "deficit" }),
    result: () => undefined,
    here: (here) => here,
  });
  link.refuse(call, error);
  return call.promise;
}

/** Returns the limiter that a combination asks in this process. */
function takerOn(here: Here, request: MemberRequest): LocalTaker {
  const { queue, amount } = request;
  const verbs = {
    peek: () => here.decide("peek", amount),
    refund: () => here.change("refund", amount, false),
    reserve: () => {
      const reservation = reservationOf(request);
      reservation.runHere(here);
      return reservation;
    },
  };
  return new LocalTaker(verbs, () => {
    const decided = here.decide("decide", amount);
    if (decided.allowed) queue.parts.meter.granted(amount, 0);
    return decided;
  });
}

/**
 * Rejects two limiters with one name and different policies: they share one state, which can use the
 * numbers of only one of them at a time.
 *
 * @throws TypeError if two of them declare different numbers
 */
function refuseContradictions(asked: readonly MemberRequest[]): void {
  const byKey = new Map<string, RemoteQueue>();
  for (const { queue } of asked) {
    const key = String(queue.link.place?.key);
    const before = byKey.get(key);
    byKey.set(key, queue);
    if (before === undefined || before === queue) continue;
    const [one, other] = [before, queue].map(({ link }) => link.combinedPart().declared);
    if (one === other) continue;
    throw new TypeError(
      `a combination must not contain two limiters that are named ${show(queue.parts.name)} and have different ` +
        `policies (${show(one)} and ${show(other)}): they would share one state; give each its own name, ` +
        "or make one limiter with several policies",
    );
  }
}
