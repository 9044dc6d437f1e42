import {
  type Clock,
  Limiter,
  type LocalLimiter,
  type LocalReservation,
  type Permits,
  type Policy,
  smoothBursty,
  smoothWarmingUp,
} from "../../src/index.ts";
import { turn } from "./limiter/watch.ts";

const START = 1e12;

/**
 * A fake clock in whole microseconds that can also step back, and counts the time that its reader
 * has seen pass.
 */
export class SteppingClock implements Clock {
  /**
   * The time that has passed since the beginning, as the reader knows it: a step back does not
   * reduce it.
   */
  seen = 0;
  #elapsed = START;
  #offset = 0;
  #read = START;
  readonly #alarms = new Set<{ at: number; wake: () => void }>();
  readonly #late: readonly number[];
  #armed = 0;

  /** @param late the lateness of its timers, in turn and repeated, microseconds; default: none */
  constructor(late: readonly number[] = [0]) {
    this.#late = late;
  }

  now(): number {
    const micros = this.#elapsed - this.#offset;
    this.seen += Math.max(0, micros - this.#read);
    this.#read = micros;
    return micros / 1000;
  }

  wakeAt(timeMs: number, wake: () => void) {
    const late = this.#late[this.#armed++ % this.#late.length] ?? 0;
    const alarm = { at: Math.round(timeMs * 1000) + this.#offset + late, wake };
    this.#alarms.add(alarm);
    return { cancel: () => void this.#alarms.delete(alarm) };
  }

  stepBack(micros: number): void {
    this.#offset += micros;
  }

  async advance(micros: number): Promise<void> {
    await turn();
    const end = this.#elapsed + micros;
    for (;;) {
      const due = [...this.#alarms].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at);
      const [next] = due;
      if (next === undefined) break;
      this.#alarms.delete(next);
      this.#elapsed = Math.max(this.#elapsed, next.at);
      next.wake();
      await turn();
    }
    this.#elapsed = end;
  }
}

/** A smooth policy in plain numbers; a warm-up is counted in intervals. */
export type Numbers =
  | { rate: number; burstSeconds: number; prefilled: boolean }
  | { rate: number; warmup: number; coldFactor: number };

export function policyOf(numbers: Numbers, factor = 1): Policy {
  const permitsPerSecond = numbers.rate * factor;
  if ("burstSeconds" in numbers) {
    const { burstSeconds, prefilled } = numbers;
    return smoothBursty({ permitsPerSecond, burstSeconds, prefilled });
  }
  const warmupMs = (numbers.warmup * 1000) / numbers.rate;
  return smoothWarmingUp({ permitsPerSecond, warmupMs, coldFactor: numbers.coldFactor });
}

/** The limiter of a story: one policy, or two. */
export type Spec = readonly Numbers[];

export function makeLimiter(spec: Spec, clock: Clock): LocalLimiter {
  return Limiter.create(policiesOf(spec, 1), { clock });
}

const NAMES = ["a", "b"];

function policiesOf(spec: Spec, factor: number) {
  return Object.fromEntries(spec.map((numbers, i) => [NAMES[i], policyOf(numbers, factor)]));
}

/**
 * Permits of the first policy and of the second, 0 for none. A limiter of one policy uses the
 * first.
 */
export type Ask = readonly [number, number];

function permitsOf(spec: Spec, [a, b]: Ask): Permits {
  if (spec.length === 1) return a || b;
  if (a === b) return a;
  return { ...(a && { a }), ...(b && { b }) };
}

/** Times are in intervals of the first policy, so that a history covers events at any rate. */
export type Op =
  | { op: "advance" | "pause" | "stepBack"; time: number }
  | { op: "acquire" | "try" | "decide" | "peek" | "charge" | "refund"; ask: Ask }
  | { op: "timed"; ask: Ask; time: number }
  | { op: "reserve"; ask: Ask; awaited: boolean }
  | { op: "ready" | "leave"; which: number }
  | { op: "settle"; which: number; ask: Ask }
  | { op: "rate"; factor: number };

/** A caller and the outcome of its request. */
export interface Asker {
  readonly verb: Op["op"];
  readonly ask: Ask;
  /**
   * The instant of the call, by the time that the limiter has seen; the instant of the grant;
   * microseconds.
   */
  readonly asked: number;
  at: number | undefined;
  /** A grant after this instant is too late. */
  deadline: number;
  /** The position among all fulfilled promises. */
  order: number | undefined;
  /** It will never be granted: it left, or its time-out could not be met. */
  gone: boolean;
  /** It was cancelled. */
  left: boolean;
  awaited: boolean;
  reservation: LocalReservation | undefined;
  leave: () => void;
}

const FOR_EVER = 1e13;

export class Story {
  readonly clock: SteppingClock;
  readonly limiter: LocalLimiter;
  readonly askers: Asker[] = [];
  /** All answers, in order. */
  readonly answers: unknown[] = [];
  readonly refunds: { at: number; ask: Ask }[] = [];
  readonly #spec: Spec;
  readonly #interval: number;
  #ended = 0;

  constructor(spec: Spec, late?: readonly number[]) {
    this.#spec = spec;
    this.clock = new SteppingClock(late);
    this.#interval = 1e6 / (spec[0]?.rate ?? 1);
    this.limiter = makeLimiter(spec, this.clock);
  }

  get isSingle(): boolean {
    return this.#spec.length === 1;
  }

  permits(ask: Ask): Permits {
    return permitsOf(this.#spec, ask);
  }

  micros(time: number): number {
    return Math.round(time * this.#interval);
  }

  async play(ops: readonly Op[], after?: (index: number) => void): Promise<this> {
    for (const [index, op] of ops.entries()) {
      await this.do(op);
      after?.(index);
    }
    return this;
  }

  /** Advances until every caller is done. */
  async end(): Promise<this> {
    await this.clock.advance(FOR_EVER);
    for (const asker of this.askers) {
      const { reservation, asked } = asker;
      if (reservation === undefined || asker.at !== undefined || asker.gone) continue;
      asker.at = asked + Math.round((await reservation.ready()) * 1000);
    }
    return this;
  }

  async do(op: Op): Promise<void> {
    const { limiter, clock } = this;
    switch (op.op) {
      case "advance":
        return clock.advance(this.micros(op.time));
      case "stepBack":
        return clock.stepBack(this.micros(op.time));
      case "pause":
        return limiter.pause(this.micros(op.time) / 1000);
      case "rate":
        return limiter.update(policiesOf(this.#spec, op.factor));
      case "charge":
        return limiter.charge(this.permits(op.ask));
      case "refund":
        limiter.refund(this.permits(op.ask));
        this.refunds.push({ at: clock.seen, ask: op.ask });
        return;
      case "peek":
        this.answers.push(limiter.peek(this.permits(op.ask)));
        return;
      case "decide": {
        const decision = limiter.decide(this.permits(op.ask));
        this.answers.push(decision);
        if (decision.allowed) this.#asker(op.op, op.ask).at = clock.seen;
        return;
      }
      case "try": {
        const got = limiter.tryAcquire(this.permits(op.ask));
        this.answers.push(got);
        if (got) this.#asker(op.op, op.ask).at = clock.seen;
        return;
      }
      case "acquire":
      case "timed": {
        const controller = new AbortController();
        const { signal } = controller;
        const permits = this.permits(op.ask);
        const asker = this.#asker(op.op, op.ask);
        asker.awaited = true;
        asker.leave = () => controller.abort();
        if (op.op === "timed") {
          const timeoutMs = this.micros(op.time) / 1000;
          asker.deadline = asker.asked + this.micros(op.time);
          this.#note(asker, limiter.tryAcquire(permits, { timeoutMs, signal }));
        } else this.#note(asker, limiter.acquire(permits, { signal }));
        return;
      }
      case "reserve": {
        const reservation = limiter.reserve(this.permits(op.ask));
        this.answers.push(reservation.waitMs);
        const asker = this.#asker(op.op, op.ask);
        asker.reservation = reservation;
        asker.leave = () => {
          if (reservation.cancel()) asker.gone = asker.left = true;
        };
        if (op.awaited) this.#await(asker);
        return;
      }
      case "ready": {
        const asker = this.#which(op.which);
        if (asker?.reservation !== undefined && !asker.awaited) this.#await(asker);
        return;
      }
      case "settle": {
        const asker = this.#which(op.which);
        asker?.reservation?.settle(this.permits(op.ask));
        return;
      }
      case "leave":
        this.#which(op.which)?.leave();
    }
  }

  #which(which: number): Asker | undefined {
    return this.askers[which % this.askers.length];
  }

  #asker(verb: Op["op"], ask: Ask): Asker {
    this.clock.now();
    const asker: Asker = {
      ...{ verb, ask, asked: this.clock.seen, at: undefined, order: undefined },
      deadline: Infinity,
      ...{ gone: false, left: false, awaited: false, reservation: undefined, leave() {} },
    };
    this.askers.push(asker);
    return asker;
  }

  #await(asker: Asker): void {
    asker.awaited = true;
    if (asker.reservation) this.#note(asker, asker.reservation.ready());
  }

  #note(asker: Asker, promise: Promise<unknown>): void {
    promise.then(
      (answer) => {
        this.answers.push(answer);
        if (answer === false) asker.gone = true;
        else {
          const waited = Math.round(Number(answer) * 1000);
          asker.at = asker.reservation === undefined ? this.clock.seen : asker.asked + waited;
          asker.order = this.#ended++;
        }
      },
      () => {
        asker.gone = asker.left = true;
      },
    );
  }
}
