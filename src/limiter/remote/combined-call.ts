/**
 * One script asks several remote limiters on one server. This file has the call, its deadline, and the
 * behaviour while the server is away.
 *
 * A reply after the deadline grants permits to a request that has failed. These permits are given back
 * to each limiter by their receipts. While the server is away the members' `whenUnavailable` decides: if
 * any member has "throw", the call fails; otherwise, if any has "wait", the call waits; otherwise the
 * fallbacks in this process answer: all are checked first, then the permits are taken from all.
 */
import { show } from "../../ground/check.ts";
import { LONGEST_TIMEOUT_MS } from "../../ground/clock.ts";
import { noAnswer, StoreUnavailableError } from "../../ground/errors.ts";
import type { Amount, Permits } from "../../ground/permits.ts";
import type { CombinedPart, CombinedReply, CombiningStore, Place } from "../../stores/store.ts";
import { AbortGroups } from "../../ground/abort-groups.ts";
import { decision, passedBy } from "../decision.ts";
import {
  GaveUpError,
  type Look,
  lookAtOnce,
  lookWithin,
  type Part,
  type RateMember,
  reportRefusal,
  type Steps,
  type Takeable,
  type Terms,
  takeAtOnce,
} from "../member.ts";
import { ScatteredError } from "../together.ts";
import type { Combinable } from "./combinable.ts";
import type { Here } from "./permit-request.ts";

const stepsOf = new WeakMap<CombiningStore, RemoteSteps>();

/** Returns the member for a combination; undefined if the limiter's store does not support combinations. */
export function remoteMember(limiter: Combinable): RateMember | undefined {
  const store = limiter.place?.store;
  if (store === undefined) return undefined;
  const steps = stepsOf.get(store) ?? new RemoteSteps(store);
  stepsOf.set(store, steps);
  return new RemoteMember(limiter, steps);
}

class RemoteMember implements RateMember {
  readonly limiter: Combinable;
  readonly steps: Steps;

  constructor(limiter: Combinable, steps: Steps) {
    this.limiter = limiter;
    this.steps = steps;
  }

  get slot(): string {
    return String(this.limiter.place?.slot);
  }

  refused(permits: Permits, look: Look): void {
    reportRefusal(this.limiter.meter, this.limiter.cell.amount(permits), look);
  }

  full(permits: Permits, { decision }: Look): Error {
    const { limiter } = this;
    const amount = limiter.cell.amount(permits);
    return decision.limit === 0 ? limiter.excess(amount) : limiter.full(amount);
  }
}

/** The request to one of the limiters. */
interface Asked {
  readonly limiter: Combinable;
  readonly permits: Permits;
  readonly amount: Amount;
  readonly longestMs: number;
  readonly isOptional: boolean;
}

/** Rejection reason for a lost reply while the store is up: the call is sent again. */
const AGAIN = Symbol("again");

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
    verb: "peek" | "take",
    parts: readonly Part[],
    { signal, timeoutMs }: Terms,
  ): Promise<readonly Look[]> {
    const asked = (parts as readonly Part<RemoteMember>[]).map(
      ({ member: { limiter }, permits, longestMs, isOptional }): Asked => {
        limiter.checkOpen();
        return { limiter, permits, amount: limiter.cell.amount(permits), longestMs, isOptional };
      },
    );
    refuseContradictions(asked);
    const end = timeoutMs === undefined ? Infinity : performance.now() + timeoutMs;
    for (;;) {
      try {
        return await this.#try(verb, asked, signal, end);
      } catch (error) {
        const isPermanent =
          error instanceof StoreUnavailableError &&
          asked.some(({ limiter }) => limiter.isPermanent(error.cause));
        if (isPermanent) {
          throw failedAll(asked, error);
        }
        if (!(error instanceof StoreUnavailableError) && error !== AGAIN) throw error;
        const waiting = asked.filter(({ limiter }) => limiter.waitsForStore);
        if (error !== AGAIN) {
          const mustThrow = asked.some(
            ({ limiter }) => !limiter.waitsForStore && limiter.here === undefined,
          );
          if (mustThrow) throw failedAll(asked, error);
          if (waiting.length === 0) return answerHere(verb, asked);
        }
        await this.#until(
          Promise.all(waiting.map(({ limiter }) => limiter.whenBack())),
          signal,
          end,
        );
      }
    }
  }

  async #try(
    verb: "peek" | "take",
    asked: readonly Asked[],
    signal: AbortSignal | undefined,
    end: number,
  ): Promise<readonly Look[]> {
    const waits = asked.some(({ limiter }) => limiter.waitsForStore);
    for (const { limiter } of waits ? [] : asked) {
      const refusal = limiter.refusal();
      if (refusal !== undefined) throw refusal;
    }
    const sentAt = asked.map(({ limiter }) => limiter.now());
    const { passes, parts } = await this.#call(verb, asked, signal, end);
    const isTaken = verb === "take" && passes;
    return asked.map((one, i) => {
      const told = parts[i] as CombinedReply["parts"][number];
      if (told.fate === "never" && !one.isOptional) throw one.limiter.excess(one.amount);
      return lookOf(one, told, isTaken && told.fate === "passes" ? sentAt[i] : undefined);
    });
  }

  /** Returns the reply if it arrives within `timeoutMs`; permits granted by a later one are given back. */
  #call(
    verb: "peek" | "take",
    asked: readonly Asked[],
    signal: AbortSignal | undefined,
    end: number,
  ): Promise<CombinedReply> {
    const patient = asked.every(({ limiter }) => limiter.waitsForStore);
    const timeoutMs = Math.min(...asked.map(({ limiter }) => limiter.timeoutMs));
    const name = String(asked[0]?.limiter.name);
    let isOpen = true;
    const reply = this.#store.runTogether(verb, asked.map(partOf)).then(
      (told) => {
        asked.forEach(({ limiter, amount }, i) => {
          const part = told.parts[i] as CombinedReply["parts"][number];
          limiter.replied(part);
          const isTaken = verb === "take" && told.passes && part.fate === "passes";
          if (!isOpen && isTaken) limiter.returnToStore(amount, part.answer);
        });
        return told;
      },
      (cause: unknown) => {
        if (isScattered(asked)) throw new ScatteredError("several slots", { cause });
        if (isOpen) for (const { limiter } of asked) limiter.lost(cause, false);
        throw new StoreUnavailableError(name, timeoutMs, cause);
      },
    );
    let timer: ReturnType<typeof setTimeout> | undefined;
    const overdue = new Promise<never>((_, reject) => {
      const fail = () => {
        const cause = noAnswer(timeoutMs);
        if (patient) {
          // replies arrive in the order of their requests: if a later one arrives, this one is lost
          const back = Promise.all(asked.map(({ limiter }) => limiter.whenBack()));
          this.#until(back, undefined, end).then(() => reject(AGAIN), reject);
        } else {
          for (const { limiter } of asked) limiter.lost(cause, true);
          reject(new StoreUnavailableError(name, timeoutMs, cause));
        }
      };
      timer = setTimeout(fail, Math.min(LONGEST_TIMEOUT_MS, timeoutMs));
    });
    return this.#until(Promise.race([reply, overdue]), signal, Infinity).finally(() => {
      isOpen = false;
      clearTimeout(timer);
    });
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
              () => stop(new GaveUpError()),
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

function partOf({ limiter, amount, longestMs, isOptional }: Asked): CombinedPart {
  const longest = limiter.hasRoom(amount) ? Math.round(longestMs * 1000) : 0;
  return { place: limiter.place as Place, ...limiter.combinedPart(), amount, longest, isOptional };
}

/**
 * Rejects two limiters with one name and different policies: they share one state, which can use the
 * numbers of only one of them at a time.
 *
 * @throws TypeError if two of them declare different numbers
 */
function refuseContradictions(asked: readonly Asked[]): void {
  const byKey = new Map<string, Combinable>();
  for (const { limiter } of asked) {
    const key = String(limiter.place?.key);
    const before = byKey.get(key);
    byKey.set(key, limiter);
    if (before === undefined || before === limiter) continue;
    const [one, other] = [before, limiter].map((each) => each.combinedPart().declared);
    if (one === other) continue;
    throw new TypeError(
      `a combination must not contain two limiters that are named ${show(limiter.name)} and have different ` +
        `policies (${show(one)} and ${show(other)}): they would share one state; give each its own name, ` +
        "or make one limiter with several policies",
    );
  }
}

/** Returns whether the limiters are in several slots, by the last reply. */
function isScattered(asked: readonly Asked[]): boolean {
  return new Set(asked.map(({ limiter }) => limiter.place?.slot)).size > 1;
}

/** @param sentAt when the call was sent, if permits were taken */
function lookOf(
  { limiter, permits, amount, longestMs }: Asked,
  { fate, answer }: CombinedReply["parts"][number],
  sentAt: number | undefined,
): Look {
  const { wait, slowest, quotas } = answer;
  const { names } = limiter.cell;
  const passes = fate === "passes";
  if (sentAt === undefined) {
    const isFull = fate === "full" || (!passes && wait <= longestMs * 1000);
    return { decision: decision(names, quotas, amount, wait, slowest), passes, isFull };
  }
  const reservation = limiter.granted(permits, amount, answer, sentAt);
  const after = decision(names, passedBy(quotas), amount, 0, 0);
  return {
    decision: { ...after, waitMs: reservation.waitMs },
    passes,
    taken: { undo: () => reservation.undo(), reservation },
  };
}

function failedAll(asked: readonly Asked[], error: unknown): unknown {
  for (const { limiter } of asked) limiter.failed(error);
  return error;
}

// -- while the store is away --

function answerHere(verb: "peek" | "take", asked: readonly Asked[]): readonly Look[] {
  const parts = asked.map(({ limiter, permits, amount, longestMs, isOptional }) => {
    const member = new FallbackMember(limiter.here as Here, permits, amount);
    return { member, permits, longestMs, isOptional };
  });
  if (verb === "peek") return lookAtOnce(parts);
  const looks = takeAtOnce(parts);
  asked.forEach(({ limiter, amount }, i) => {
    const { taken, decision } = looks[i] as Look;
    if (taken !== undefined) limiter.meter.granted(amount, decision.waitMs * 1000);
  });
  return looks;
}

class FallbackMember implements Takeable {
  readonly #here: Here;
  readonly #permits: Permits;
  readonly #amount: Amount;

  constructor(here: Here, permits: Permits, amount: Amount) {
    this.#here = here;
    this.#permits = permits;
    this.#amount = amount;
  }

  look(_permits: Permits, longestMs: number): Look {
    return lookWithin(this.#here.peek(this.#permits, this.#amount), longestMs);
  }

  take(permits: Permits, longestMs: number): Look {
    const [here, amount] = [this.#here, this.#amount];
    if (longestMs === 0) {
      const decision = here.decide(this.#permits, amount);
      if (!decision.allowed) return { decision, passes: false };
      return {
        decision,
        passes: true,
        taken: { undo: () => here.change("refund", amount, false) },
      };
    }
    const before = this.look(permits, longestMs);
    if (!before.passes) return before;
    const reservation = here.reserve(this.#permits, amount);
    const { waitMs } = reservation;
    const undo = () => {
      if (!reservation.cancel()) reservation.settle(0);
    };
    const after = here.peek(this.#permits, amount);
    const decision = { ...after, allowed: true, waitMs };
    return { decision, passes: true, taken: { undo, reservation } };
  }
}
