/**
 * Several limiters as one: all let a request pass, or none is charged.
 *
 * Limiters in this process are asked at one instant, so a refusal leaves no trace. Of others each
 * is asked for a reservation, all at once, and what they granted is given back exactly if one of
 * them refuses: for the length of a round trip others see it taken.
 *
 * Who waits holds a reservation of each and goes at the latest of their instants. The permits of
 * those that could have gone earlier are used later than they were reserved for: a limiter may then
 * let through, besides its own bound, what waits for the others.
 */
import { QueueFullError } from "../errors.ts";
import type { Permits } from "../permits.ts";
import type {
  Decision,
  Limiter,
  LocalLimiter,
  PermitsOnly,
  PolicyStatus,
  Reservation,
  TryOptions,
  WaitOptions,
} from "./face.ts";
import { KeyLimiter } from "./keyed.ts";
import { QueueingLimiter } from "./limiter.ts";
import { checkTryOptions, checkWaitOptions, isTryOptions } from "./options.ts";
import { RemoteReservation } from "./remote/remote-reservation.ts";

type Maybe<T> = T | Promise<T>;

/**
 * Several limiters as one: all let a request pass, or none is charged. For several rules about the
 * same key give one limiter several policies; this is for limiters of different keys.
 *
 * @param limiters two or more; in this process, on Redis, or both. The permits asked for are asked
 *   of each
 * @returns a limiter whose quick verbs answer at once if all of theirs do. In its decisions the
 *   policies of the second limiter and so on have "#2" and so on after their name where it is taken
 * @throws TypeError on what is no limiter
 * @example
 * const limiter = allOf(everybody, perUser.for(user), perAddress.for(address));
 * if (!limiter.tryAcquire()) return tooManyRequests();
 */
export function allOf(...limiters: readonly LocalLimiter[]): LocalLimiter;
export function allOf(...limiters: readonly Limiter[]): Limiter;
export function allOf(...limiters: readonly Limiter[]): Limiter {
  for (const [i, limiter] of limiters.entries()) {
    if (typeof (limiter as Partial<Limiter> | null)?.reserve === "function") continue;
    throw new TypeError(`allOf: argument ${i + 1} must be a limiter`);
  }
  if (limiters.length === 0) throw new TypeError("allOf needs a limiter");
  return new AllOf(limiters);
}

type LocalMember = QueueingLimiter | KeyLimiter | AllOf;

class AllOf implements Limiter {
  readonly #limiters: readonly Limiter[];
  /** Asking costs nothing and is answered at once. */
  readonly isLocal: boolean;

  constructor(limiters: readonly Limiter[]) {
    this.#limiters = limiters;
    this.isLocal = limiters.every(
      (one) =>
        one instanceof QueueingLimiter ||
        one instanceof KeyLimiter ||
        (one instanceof AllOf && one.isLocal),
    );
  }

  async acquire(permits: Permits = 1, options?: WaitOptions): Promise<number> {
    checkWaitOptions(options)?.throwIfAborted();
    const reservation = await this.reserve(permits);
    return reservation.ready(options);
  }

  tryAcquire(permits?: PermitsOnly): boolean;
  tryAcquire(options: TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | undefined): boolean;
  tryAcquire(permits: Permits, wait: number | TryOptions): Promise<boolean>;
  tryAcquire(permits: Permits | TryOptions = 1, wait?: number | TryOptions): Maybe<boolean> {
    if (wait !== undefined) return this.#tryWithin(permits as Permits, wait);
    if (isTryOptions(permits)) return this.#tryWithin(1, permits);
    return chain(this.#reserveWithin(permits, 0), (reserved) => reserved !== undefined);
  }

  async #tryWithin(permits: Permits, wait: number | TryOptions): Promise<boolean> {
    const { micros, signal } = checkTryOptions(wait);
    signal?.throwIfAborted();
    const reserved = await this.#reserveWithin(permits, micros / 1000);
    await reserved?.ready({ signal });
    return reserved !== undefined;
  }

  #reserveWithin(permits: Permits, longestMs: number): Maybe<AllReserved | undefined> {
    if (this.isLocal) {
      const decisions = this.#limiters.map((limiter) => limiter.peek(permits) as Decision);
      if (decisions.some(({ waitMs }) => waitMs > longestMs)) {
        this.#refused(permits, decisions, longestMs);
        return undefined;
      }
    }
    return chain(
      outcomeOf(() => this.reserve(permits)),
      (outcome) => {
        if (outcome.error instanceof QueueFullError) return undefined;
        const reserved = unwrap(outcome);
        if (reserved.waitMs <= longestMs) return reserved;
        return chain(reserved.undo(), () => undefined);
      },
    );
  }

  reserve(permits: Permits = 1): Maybe<AllReserved> {
    const asked = this.#limiters.map((limiter) => outcomeOf(() => limiter.reserve(permits)));
    return chain(all(asked), (outcomes) => {
      const granted = outcomes.flatMap(({ value }) => value ?? []);
      if (granted.length === outcomes.length) return new AllReserved(permits, granted);
      const failed = outcomes.find(({ value }) => value === undefined) as Outcome<Reservation>;
      return chain(withdraw(granted), () => unwrap(failed) as never);
    });
  }

  decide(permits: Permits = 1): Maybe<Decision> {
    const before = this.#look(permits);
    if (!(before instanceof Promise) && before.some(({ allowed }) => !allowed)) {
      if (this.isLocal) this.#refused(permits, before, 0);
      return merge(before);
    }
    // of those elsewhere all this travels together
    const reserved = outcomeOf(() => this.#reserveWithin(permits, 0));
    const after = this.#look(permits);
    return chain(all<unknown>([before, reserved, after]), (told) => {
      const [was, outcome, is] = told as [Decision[], Outcome<AllReserved | undefined>, Decision[]];
      if (unwrap(outcome) !== undefined) return { ...merge(is), allowed: true, waitMs: 0 };
      const decision = merge(was);
      // somebody was faster: at once, then
      return decision.allowed ? { ...decision, allowed: false } : decision;
    });
  }

  peek(permits: Permits = 1): Maybe<Decision> {
    return chain(this.#look(permits), merge);
  }

  charge(permits: Permits): Maybe<void> {
    return this.#each(permits, (limiter) => limiter.charge(permits));
  }

  refund(permits: Permits): Maybe<void> {
    return this.#each(permits, (limiter) => limiter.refund(permits));
  }

  pause(ms: number): Maybe<void> {
    const paused = this.#limiters.map((limiter) => limiter.pause(ms));
    return chain(all<unknown>(paused), () => {});
  }

  reset(): Maybe<void> {
    const done = this.#limiters.map((limiter) => limiter.reset());
    return chain(all<unknown>(done), () => {});
  }

  update(): never {
    throw new TypeError("allOf has no policies of its own: update its limiters");
  }

  tellRefusal(permits: Permits, _refusal: Decision, longestMs: number): void {
    this.#refused(permits, this.#look(permits) as readonly Decision[], longestMs);
  }

  /** All are in this process; those that would not let it pass count it, and tell. */
  #refused(permits: Permits, decisions: readonly Decision[], longestMs: number): void {
    for (const [i, limiter] of (this.#limiters as readonly LocalMember[]).entries()) {
      const refusal = decisions[i] as Decision;
      if (refusal.waitMs > longestMs) limiter.tellRefusal(permits, refusal, longestMs);
    }
  }

  #look(permits: Permits): Maybe<readonly Decision[]> {
    return all(this.#limiters.map((limiter) => limiter.peek(permits)));
  }

  /** Nothing is done to one before all have found that it is possible. */
  #each(permits: Permits, deed: (limiter: Limiter) => Maybe<void>): Maybe<void> {
    return chain(this.#look(permits), () =>
      chain(all<unknown>(this.#limiters.map(deed)), () => {}),
    );
  }
}

class AllReserved implements Reservation {
  readonly permits: Permits;
  readonly waitMs: number;
  readonly #reservations: readonly Reservation[];

  constructor(permits: Permits, reservations: readonly Reservation[]) {
    this.permits = permits;
    this.waitMs = Math.max(...reservations.map(({ waitMs }) => waitMs));
    this.#reservations = reservations;
  }

  async ready(options?: WaitOptions): Promise<number> {
    try {
      return Math.max(...(await Promise.all(this.#reservations.map((one) => one.ready(options)))));
    } catch (error) {
      void outcomeOf(() => this.undo());
      throw error;
    }
  }

  cancel(): Maybe<boolean> {
    if (this.waitMs === 0) return false;
    return chain(all(this.#reservations.map((one) => one.cancel())), (cancelled) => {
      if (!cancelled.includes(true)) return false;
      // those that need not have waited
      const rest = this.#reservations.filter((_, i) => !cancelled[i]);
      return chain(withdraw(rest), () => true);
    });
  }

  undo(): Maybe<void> {
    return withdraw(this.#reservations);
  }

  settle(actual: Permits): Maybe<void> {
    return chain(all<unknown>(this.#reservations.map((one) => one.settle(actual))), () => {});
  }
}

/** As if they had not been made, the last one first. */
function withdraw(reservations: readonly Reservation[]): Maybe<void> {
  const withdrawn = reservations.toReversed().map((one) => {
    if (one instanceof RemoteReservation || one instanceof AllReserved) return one.undo();
    return chain(one.cancel(), (cancelled) => (cancelled ? undefined : one.settle(0)));
  });
  return chain(all<unknown>(withdrawn), () => {});
}

/** One decision of several. */
function merge(decisions: readonly Decision[]): Decision {
  const policies: Record<string, PolicyStatus> = {};
  const named = decisions.map((decision, i) => {
    const nameOf = (name: string) => (Object.hasOwn(policies, name) ? `${name}#${i + 1}` : name);
    const renamed = Object.entries(decision.policies).map(
      ([name, status]) => [nameOf(name), status] as const,
    );
    const policy = nameOf(decision.policy);
    for (const [name, status] of renamed) policies[name] = status;
    return { ...decision, policy };
  });
  const [first, ...rest] = named as [Decision, ...Decision[]];
  const binding = rest.reduce((one, other) => (binds(other, one) ? other : one), first);
  return { ...binding, policies };
}

function binds(one: Decision, other: Decision): boolean {
  if (one.waitMs !== other.waitMs) return one.waitMs > other.waitMs;
  return share(one) < share(other);
}

function share({ remaining, limit }: Decision): number {
  return limit === Infinity ? Number(remaining > 0) : remaining / limit;
}

// -- answers that may come now or later --

interface Outcome<T> {
  readonly value?: T;
  readonly error?: unknown;
}

function chain<T, R>(answer: Maybe<T>, go: (answer: T) => Maybe<R>): Maybe<R> {
  return answer instanceof Promise ? answer.then(go) : go(answer);
}

function all<T>(answers: readonly Maybe<T>[]): Maybe<readonly T[]> {
  return answers.some((answer) => answer instanceof Promise)
    ? Promise.all(answers)
    : (answers as readonly T[]);
}

function outcomeOf<T>(deed: () => Maybe<T>): Maybe<Outcome<T>> {
  try {
    const answer = deed();
    if (!(answer instanceof Promise)) return { value: answer };
    return answer.then(
      (value) => ({ value }),
      (error: unknown) => ({ error }),
    );
  } catch (error) {
    return { error };
  }
}

function unwrap<T>({ value, error }: Outcome<T>): T {
  if (error !== undefined) throw error;
  return value as T;
}
