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

import { AbortGroups } from "../../ground/abort-groups.ts";
import { show } from "../../ground/check.ts";
import { LONGEST_TIMEOUT_MS } from "../../ground/clock.ts";
import { oncePerProcess } from "../../ground/copies.ts";
import { noAnswer, StoreUnavailableError } from "../../ground/errors.ts";
import { nextTurn } from "../../ground/macrotask-gate.ts";
import type { Permits } from "../../ground/permits.ts";
import type {
  CombinedPart,
  CombinedReply,
  CombiningStore,
  StateLocation,
} from "../../stores/store.ts";
import { decision, passing } from "../decision.ts";
import { GaveUpError } from "../gave-up.ts";
import {
  ForeignMember,
  type Look,
  type Part,
  type RateMember,
  reportRefusal,
  type Steps,
  type Terms,
} from "../member.ts";
import { ScatteredError } from "../together.ts";
import { answerHere, type MemberRequest, reservationOf } from "./combined-fallback.ts";
import { type Here, StoreCall } from "./permit-request.ts";
import type { RemoteQueue } from "./remote-queue.ts";

const stepsOf = /* @__PURE__ */ oncePerProcess(
  "remote steps",
  () => new WeakMap<CombiningStore, RemoteSteps>(),
);

/** @param enter of the fair calls in front of the queue */
export function remoteMember(queue: RemoteQueue, enter: RateMember["enter"]): RateMember {
  const store = queue.link.place?.store;
  if (store === undefined) return new ForeignMember(queue, enter);
  const steps = stepsOf.get(store) ?? new RemoteSteps(store);
  stepsOf.set(store, steps);
  return new RemoteMember(queue, steps, enter);
}

class RemoteMember implements RateMember {
  readonly queue: RemoteQueue;
  readonly steps: Steps;
  readonly enter: RateMember["enter"];

  constructor(queue: RemoteQueue, steps: Steps, enter: RateMember["enter"]) {
    this.queue = queue;
    this.steps = steps;
    this.enter = enter;
  }

  get slot(): string {
    return String(this.queue.link.place?.slot);
  }

  refused(permits: Permits, look: Look): void {
    const { meter, policyState } = this.queue.parts;
    reportRefusal(meter, policyState.amount(permits), look);
  }

  full(permits: Permits, { decision }: Look): Error {
    const { policyState, inForce } = this.queue.parts;
    const amount = policyState.amount(permits);
    return decision.limit === 0 ? inForce.excess(amount) : this.queue.full(amount);
  }
}

type Verb = "peek" | "take";

class RemoteSteps implements Steps {
  readonly #store: CombiningStore;
  readonly #signals = new AbortGroups<(reason: unknown) => void>((end, reason) => end(reason));

  constructor(store: CombiningStore) {
    this.#store = store;
  }

  look(parts: readonly Part[], terms: Terms): Promise<readonly Look[]> {
    return this.#ask("peek", parts, terms);
  }

  take(parts: readonly Part[], terms: Terms): Promise<readonly Look[]> {
    return this.#ask("take", parts, terms);
  }

  async #ask(
    verb: Verb,
    parts: readonly Part[],
    { signal, timeoutMs }: Terms,
  ): Promise<readonly Look[]> {
    const asked = (parts as readonly Part<RemoteMember>[]).map(
      ({ member: { queue }, permits, longestMs, isOptional }): MemberRequest => {
        queue.checkOpen();
        const amount = queue.parts.policyState.amount(permits);
        return { queue, permits, amount, longestMs, isOptional };
      },
    );
    refuseContradictions(asked);
    const end = timeoutMs === undefined ? Infinity : performance.now() + timeoutMs;
    for (;;) {
      const looks = await this.#try(verb, asked, signal, end);
      if (looks !== undefined) return looks;
    }
  }

  /** Resolves to undefined when the store is back after an outage: the call is to be sent again. */
  async #try(
    verb: Verb,
    asked: readonly MemberRequest[],
    signal: AbortSignal | undefined,
    end: number,
  ): Promise<readonly Look[] | undefined> {
    const timeoutMs = Math.min(...asked.map(({ queue }) => queue.parts.timeoutMs));
    let isOpen = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const instead = (error: unknown) => this.#instead(verb, asked, error, end);
    const failed = (cause: unknown, isOverdue: boolean) => {
      for (const { queue } of asked) queue.link.failed([], cause, isOverdue);
      const name = String(asked[0]?.queue.parts.name);
      return instead(new StoreUnavailableError(name, timeoutMs, cause));
    };
    const send = async () => {
      const sentAt = asked.map(({ queue }) => queue.parts.line.now());
      let reply: CombinedReply;
      try {
        reply = await this.#store.runTogether(verb, asked.map(partOf));
      } catch (cause) {
        if (!isOpen) return undefined;
        if (isScattered(asked)) throw new ScatteredError(cause);
        return failed(cause, false);
      }
      return read(verb, asked, reply, sentAt, isOpen);
    };
    const [refusal] = asked.flatMap(({ queue }) => queue.link.refusal() ?? []);
    const overdue = new Promise<readonly Look[] | undefined>((resolve) => {
      if (refusal !== undefined) return;
      const expire = () => resolve(failed(noAnswer(timeoutMs), true));
      timer = setTimeout(expire, Math.min(LONGEST_TIMEOUT_MS, timeoutMs));
    });
    const looks = refusal === undefined ? Promise.race([send(), overdue]) : instead(refusal);
    try {
      return await this.#until(looks, signal, Infinity);
    } finally {
      isOpen = false;
      clearTimeout(timer);
    }
  }

  /**
   * What the members' strategies do when the call has failed: reject; wait for the store, and resolve to
   * undefined; or answer in this process.
   */
  async #instead(
    verb: Verb,
    asked: readonly MemberRequest[],
    error: unknown,
    end: number,
  ): Promise<readonly Look[] | undefined> {
    try {
      const fallbacks = Promise.all(asked.map(({ queue }) => fallbackOf(queue, error)));
      const heres = (await this.#until(fallbacks, undefined, end)).filter(
        (here) => here !== undefined,
      );
      return heres.length === asked.length ? answerHere(verb, asked, heres) : undefined;
    } catch (reason) {
      for (const { queue } of asked) queue.parts.stats.failed(reason);
      throw reason;
    }
  }

  /** Returns the outcome of the promise, unless the signal or the time-out ends the wait before. */
  #until<T>(promise: Promise<T>, signal: AbortSignal | undefined, end: number): Promise<T> {
    if (signal === undefined && end === Infinity) return promise;
    return new Promise((resolve, reject) => {
      const stop = (reason: unknown) => {
        leave();
        reject(reason);
      };
      const timer =
        end < Infinity
          ? setTimeout(
              // answers in this process may be due in this turn: see MacrotaskGate
              () => nextTurn(() => stop(new GaveUpError())),
              Math.min(LONGEST_TIMEOUT_MS, Math.max(0, end - performance.now())),
            )
          : undefined;
      const leave = () => {
        clearTimeout(timer);
        if (signal !== undefined) this.#signals.delete(signal, stop);
      };
      if (signal?.aborted) stop(signal.reason);
      else if (signal !== undefined) this.#signals.add(signal, stop);
      promise.then(resolve, reject).finally(leave);
    });
  }
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

function partOf({ queue, amount, longestMs, isOptional }: MemberRequest): CombinedPart {
  const longest = queue.hasRoom(amount) ? Math.round(longestMs * 1000) : 0;
  const place = queue.link.place as StateLocation;
  return { place, ...queue.link.combinedPart(), amount, longest, isOptional };
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

/** Returns whether the limiters are in several slots, by the last reply. */
function isScattered(asked: readonly MemberRequest[]): boolean {
  return new Set(asked.map(({ queue }) => queue.link.place?.slot)).size > 1;
}

/** @param isOpen whether the call still counts; if not, the permits are given back */
function read(
  verb: Verb,
  asked: readonly MemberRequest[],
  { passes, parts }: CombinedReply,
  sentAt: readonly number[],
  isOpen: boolean,
): readonly Look[] {
  asked.forEach(({ queue }, i) => {
    queue.link.replied(parts[i] as PartReply);
  });
  return asked.flatMap((one, i) => {
    const { queue, amount, isOptional } = one;
    const part = parts[i] as PartReply;
    const isTaken = verb === "take" && passes && part.fate === "passes";
    if (isOpen) {
      if (part.fate === "never" && !isOptional) throw queue.parts.inForce.excess(amount);
      return lookOf(one, part, isTaken ? sentAt[i] : undefined);
    }
    if (isTaken) queue.returnToStore(amount, part.answer).catch(() => {});
    return [];
  });
}

type PartReply = CombinedReply["parts"][number];

/** @param sentAt when the call was sent, if permits were taken */
function lookOf(
  { queue, permits, amount, longestMs }: MemberRequest,
  { fate, answer }: PartReply,
  sentAt: number | undefined,
): Look {
  const { wait, slowest, quotas } = answer;
  const { names } = queue.parts.policyState;
  const passes = fate === "passes";
  if (sentAt === undefined) {
    const isFull = fate === "full" || (!passes && wait <= longestMs * 1000);
    return { decision: decision(names, quotas, amount, wait, slowest), passes, isFull };
  }
  const reservation = reservationOf(queue, permits, amount);
  queue.strategy.answered(reservation, answer);
  reservation.accept(answer, sentAt);
  const after = passing(names, quotas, amount);
  return {
    decision: { ...after, waitMs: reservation.waitMs },
    passes,
    taken: { undo: () => reservation.undo(), reservation },
  };
}
