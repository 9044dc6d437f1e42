/**
 * One script asks several remote limiters on one server. This file has the call, its deadline, and the
 * behaviour while the server is away.
 *
 * A reply after the deadline counts as long as no participant's strategy has decided what happens instead;
 * later, the permits that it grants are given back to each limiter by their receipts. While the server is
 * away each participant's `whenUnavailable` decides: if any participant has "throw", the call fails; otherwise, if
 * any has "wait", the call is sent again when the server is back; otherwise the fallbacks in this process
 * answer: all are checked first, then the permits are taken from all.
 */

import { decision, passing } from "../api/decision.ts";
import {
  type AtomicStep,
  type AwaitedStore,
  type Check,
  checkAtOnce,
  ForeignParticipant,
  LocalTaker,
  type RateParticipant,
  reportRefusal,
  ScatteredError,
  type Subrequest,
  takeAtOnce,
} from "../api/participant.ts";
import { firstOf, type StepOptions, until } from "../api/timeout.ts";
import { show } from "../ground/check.ts";
import { LONGEST_TIMEOUT_MS } from "../ground/clock.ts";
import { oncePerProcess } from "../ground/copies.ts";
import { noAnswer, StoreUnavailableError } from "../ground/errors.ts";
import { all } from "../ground/maybe-promise.ts";
import type { Amount, Permits } from "../ground/permits.ts";
import type {
  CombinedReply,
  CombinedSubrequest,
  CombiningStore,
  StateLocation,
} from "../stores/store.ts";
import { type Fallback, StoreCall } from "./permit-request.ts";
import type { RemoteCalls } from "./remote-calls.ts";
import { RemoteReservation } from "./remote-reservation.ts";

const stepOf = /* @__PURE__ */ oncePerProcess(
  "remote steps",
  () => new WeakMap<CombiningStore, AtomicStep>(),
);

interface RemoteParticipant extends RateParticipant {
  readonly calls: RemoteCalls;
}

/** @param enter of the fair calls in front of the queue */
export function remoteParticipant(
  calls: RemoteCalls,
  enter: RateParticipant["enter"],
): RateParticipant {
  const store = calls.link.location?.store;
  if (store === undefined) return new ForeignParticipant(calls, enter, awaitedStore(calls));
  const steps = stepOf.get(store) ?? stepOn(store);
  stepOf.set(store, steps);
  const { callStats, policyState, activePolicies } = calls.parts;
  const participant: RemoteParticipant = {
    calls,
    steps,
    isFair: enter !== undefined,
    enter,
    // it changes when the server turns out to be part of a Cluster
    get slot() {
      return String(calls.link.location?.slot);
    },
    get answerMs() {
      return calls.link.answerMs;
    },
    refused: (permits, check) => reportRefusal(callStats, policyState.amount(permits), check),
    full: (permits, { decision }) => {
      const amount = policyState.amount(permits);
      return decision.limit === 0 ? activePolicies.excess(amount) : calls.full(amount);
    },
  };
  return participant;
}

/** For a limiter on a store that cannot run a script for several limiters: it is asked by its own verbs. */
function awaitedStore(calls: RemoteCalls): AwaitedStore {
  return {
    get answerMs() {
      return calls.link.answerMs;
    },
    back(options) {
      const error = calls.link.refusal();
      return error && counted([calls], () => fallbacksOf([calls], error, options));
    },
  };
}

function stepOn(store: CombiningStore): AtomicStep {
  const ask = (verb: Verb) => async (subrequests: readonly Subrequest[], options: StepOptions) =>
    new CombinedCall(
      store,
      verb,
      subrequests as readonly Subrequest<RemoteParticipant>[],
      options,
    ).checks();
  return { check: ask("peek"), take: ask("take") };
}

type Verb = "peek" | "take";
type SubrequestReply = CombinedReply["parts"][number];

/** The request to one of the limiters. */
interface ParticipantRequest {
  readonly calls: RemoteCalls;
  readonly permits: Permits;
  readonly amount: Amount;
  readonly longestMs: number;
  readonly isOptional: boolean;
}

class CombinedCall {
  readonly #store: CombiningStore;
  readonly #verb: Verb;
  readonly #asked: readonly ParticipantRequest[];
  readonly #signal: AbortSignal | undefined;
  /** When the caller stops waiting for the store, by `performance.now()`. */
  readonly #endMs: number;

  constructor(
    store: CombiningStore,
    verb: Verb,
    parts: readonly Subrequest<RemoteParticipant>[],
    { signal, timeoutMs = Infinity }: StepOptions,
  ) {
    this.#store = store;
    this.#verb = verb;
    this.#asked = parts.map(({ participant: { calls }, permits, longestMs, isOptional }) => {
      calls.checkOpen();
      const amount = calls.parts.policyState.amount(permits);
      return { calls, permits, amount, longestMs, isOptional };
    });
    refuseContradictions(this.#asked);
    this.#signal = signal;
    this.#endMs = performance.now() + timeoutMs;
  }

  async checks(): Promise<readonly Check[]> {
    const [refusal] = this.#asked.flatMap(({ calls }) => calls.link.refusal() ?? []);
    let checks = refusal && (await this.#instead(refusal));
    // the store is back: the call is sent, even if some participants have not noticed yet
    while (checks === undefined) checks = await this.#try();
    return checks;
  }

  /** Resolves to undefined when the store is back after an outage: the call is to be sent again. */
  async #try(): Promise<readonly Check[] | undefined> {
    const timeoutMs = Math.min(...this.#asked.map(({ calls }) => calls.parts.timeoutMs));
    let isOpen = true;
    const failed = (cause: unknown, isOverdue: boolean) => {
      for (const { calls } of this.#asked) calls.link.failed([], cause, isOverdue);
      const name = String(this.#asked[0]?.calls.parts.name);
      return this.#instead(new StoreUnavailableError(name, timeoutMs, cause));
    };
    const sentAt = this.#asked.map(({ calls }) => calls.parts.queue.now());
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
    type Outcome = readonly Check[] | undefined;
    const overdue = new Promise<Outcome>((resolve) => {
      const expire = () => resolve(failed(noAnswer(timeoutMs), true));
      timer = setTimeout(expire, Math.min(LONGEST_TIMEOUT_MS, timeoutMs));
    });
    try {
      // a reply may arrive in the microtasks in which another outcome does
      const undo = (late: Outcome) => all(late ?? [], ({ taken }) => taken?.undo());
      return await firstOf([sent, overdue], { signal: this.#signal }, undo);
    } finally {
      isOpen = false;
      clearTimeout(timer);
    }
  }

  // -- a reply --

  /** @param isOpen whether the call still counts; if not, the permits are given back */
  #read(reply: CombinedReply, sentAt: readonly number[], isOpen: boolean): readonly Check[] {
    const parts = reply.parts as readonly SubrequestReply[];
    this.#asked.forEach(({ calls }, i) => {
      calls.link.replied(parts[i] as SubrequestReply);
    });
    return this.#asked.flatMap((one, i) => {
      const { calls, amount, isOptional } = one;
      const part = parts[i] as SubrequestReply;
      const isTaken = this.#verb === "take" && reply.passes && part.fate === "passes";
      if (isOpen) {
        if (part.fate === "never" && !isOptional) throw calls.parts.activePolicies.excess(amount);
        return checkOf(one, part, isTaken ? sentAt[i] : undefined);
      }
      if (isTaken) calls.returnToStore(amount, part.answer).catch(() => {});
      return [];
    });
  }

  /** Whether the limiters are in several slots, by the last reply. */
  get #isScattered(): boolean {
    return new Set(this.#asked.map(({ calls }) => calls.link.location?.slot)).size > 1;
  }

  // -- while the store is away --

  /**
   * What the participants' strategies do when the call has failed: reject; wait for the store, and resolve to
   * undefined; or answer in this process: all are checked, then the permits are taken from all.
   */
  #instead(error: unknown): Promise<readonly Check[] | undefined> {
    const asked = this.#asked.map(({ calls }) => calls);
    return counted(asked, async () => {
      const timeoutMs = this.#endMs - performance.now();
      const heres = await fallbacksOf(asked, error, { signal: this.#signal, timeoutMs });
      if (!heres.every((here) => here !== undefined)) return undefined;
      const parts = this.#asked.map((one, i) => ({
        ...one,
        participant: takerOn(heres[i] as Fallback, one),
      }));
      return this.#verb === "peek" ? checkAtOnce(parts) : takeAtOnce(parts);
    });
  }
}

function partOf({ calls, amount, longestMs, isOptional }: ParticipantRequest): CombinedSubrequest {
  const longest = calls.hasRoom(amount) ? Math.round(longestMs * 1000) : 0;
  const location = calls.link.location as StateLocation;
  return { location, ...calls.link.combinedSubrequest(), amount, longest, isOptional };
}

/** @param sentAt when the call was sent, if permits were taken */
function checkOf(
  request: ParticipantRequest,
  { fate, answer }: SubrequestReply,
  sentAt?: number,
): Check {
  const { calls, amount, longestMs } = request;
  const { wait, slowest, quotas } = answer;
  const { names } = calls.parts.policyState;
  const passes = fate === "passes";
  if (sentAt === undefined) {
    const isFull = fate === "full" || (!passes && wait <= longestMs * 1000);
    return { decision: decision(names, quotas, amount, wait, slowest), passes, isFull };
  }
  const reservation = reservationOf(request);
  calls.strategy.answered(reservation, answer);
  reservation.accept(answer, sentAt);
  const after = passing(names, quotas, amount);
  return {
    decision: { ...after, waitMs: reservation.waitMs },
    passes,
    taken: { undo: () => reservation.undo(), reservation },
  };
}

function reservationOf({ calls, permits, amount }: ParticipantRequest): RemoteReservation {
  return new RemoteReservation(calls, { permits, amount, longest: undefined, signal: undefined });
}

/** Counts the error of a call as one of each limiter. */
async function counted<T>(asked: readonly RemoteCalls[], call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (reason) {
    for (const { parts } of asked) parts.stats.failed(reason);
    throw reason;
  }
}

/**
 * Rejects if the calls of one of the limiters fail with the error. Otherwise resolves for each to undefined when its
 * store is back, or to its fallback at once.
 */
async function fallbacksOf(
  asked: readonly RemoteCalls[],
  error: unknown,
  options: StepOptions,
): Promise<readonly (Fallback | undefined)[]> {
  const calls = asked.map(({ link }) => {
    const call = new StoreCall<Fallback | undefined>({
      request: () => ({ verb: "deficit" }),
      result: () => undefined,
      here: (here) => here,
    });
    link.refuse(call, error);
    return call;
  });
  try {
    return await until(Promise.all(calls.map(({ promise }) => promise)), options);
  } finally {
    // one whose caller has left would be kept for as long as the outage lasts
    for (const call of calls) call.gone = true;
  }
}

/** Returns the limiter that a combination asks in this process. */
function takerOn(here: Fallback, request: ParticipantRequest): LocalTaker {
  const { calls, amount } = request;
  const verbs = {
    peek: () => here.decide("peek", amount),
    refund: () => here.change("refund", amount, false),
    reserve: () => {
      const reservation = reservationOf(request);
      reservation.runInFallback(here);
      return reservation;
    },
  };
  return new LocalTaker(verbs, () => {
    const decided = here.decide("decide", amount);
    if (decided.allowed) calls.parts.callStats.granted(amount, 0);
    return decided;
  });
}

/**
 * Rejects two limiters with one name and different policies: they share one state, which can use the
 * numbers of only one of them at a time.
 *
 * @throws TypeError if two of them declare different numbers
 */
function refuseContradictions(asked: readonly ParticipantRequest[]): void {
  const byKey = new Map<string, RemoteCalls>();
  for (const { calls } of asked) {
    const key = String(calls.link.location?.key);
    const before = byKey.get(key);
    byKey.set(key, calls);
    if (before === undefined || before === calls) continue;
    const [one, other] = [before, calls].map(({ link }) => link.combinedSubrequest().declared);
    if (one === other) continue;
    throw new TypeError(
      `a combination must not contain two limiters that are named ${show(calls.parts.name)} and have different ` +
        `policies (${show(one)} and ${show(other)}): they would share one state; give each its own name, ` +
        "or make one limiter with several policies",
    );
  }
}
