import type { Numbers } from "../story.ts";

interface State {
  nextFree: number;
  stored: number;
}

interface InLine {
  readonly id: number;
  readonly permits: number;
  readonly deadline: number;
}

/**
 * The smooth limiter once more, written to be read: microseconds, one state, and a line that is
 * scanned from its beginning whenever anything happens. Every event re-times every waiter.
 */
export class SlowLimiter {
  now = 0;
  /**
   * The instant of each grant, by the number of the request; undefined if its time-out could not
   * be met.
   */
  readonly released = new Map<number, number | undefined>();
  /** A request was so close to an edge that rounding decides: this history proves nothing. */
  doubtful = false;

  readonly #numbers: Numbers;
  #factor = 1;
  /** No fraction has occurred yet, which two ways to calculate would round differently. */
  #exact = true;
  readonly #state: State;
  #pausedUntil = 0;
  #line: InLine[] = [];

  constructor(numbers: Numbers) {
    this.#numbers = numbers;
    const full = !("burstSeconds" in numbers) || numbers.prefilled;
    this.#state = { nextFree: 0, stored: full ? this.#max : 0 };
  }

  get #stable(): number {
    return 1e6 / (this.#numbers.rate * this.#factor);
  }

  get #threshold(): number {
    return "burstSeconds" in this.#numbers ? Infinity : (this.#numbers.warmup * this.#factor) / 2;
  }

  get #max(): number {
    const numbers = this.#numbers;
    if ("burstSeconds" in numbers) return numbers.rate * this.#factor * numbers.burstSeconds;
    return this.#threshold + (2 * numbers.warmup * this.#factor) / (1 + numbers.coldFactor);
  }

  get #coolDown(): number {
    const numbers = this.#numbers;
    if ("burstSeconds" in numbers) return this.#stable;
    return ((numbers.warmup / numbers.rate) * 1e6) / this.#max;
  }

  /** The time that it costs to use up a store of that size. */
  #worth(stored: number): number {
    const numbers = this.#numbers;
    if ("burstSeconds" in numbers) return 0;
    const above = Math.max(0, stored - this.#threshold);
    const rise = (this.#stable * (numbers.coldFactor - 1)) / (this.#max - this.#threshold);
    return stored * this.#stable + (rise * above * above) / 2;
  }

  #idle(state: State, now: number): void {
    if (now <= state.nextFree) return;
    state.stored = Math.min(this.#max, state.stored + (now - state.nextFree) / this.#coolDown);
    state.nextFree = now;
  }

  #use(state: State, at: number, permits: number): void {
    this.#idle(state, at);
    const left = Math.max(0, state.stored - permits);
    const fresh = Math.max(0, permits - state.stored);
    state.nextFree += this.#worth(state.stored) - this.#worth(left) + fresh * this.#stable;
    state.stored = left;
    this.#exact &&= Number.isInteger(state.nextFree) && Number.isInteger(state.stored);
  }

  #instant(state: State, from: number): number {
    return Math.max(from, this.#pausedUntil, state.nextFree);
  }

  /** Whether the instant is still in the future. */
  #isLater(instant: number, limit: number, { nextFree }: State): boolean {
    if (!this.#exact && Math.abs(nextFree - limit) < 40) this.doubtful = true;
    return instant > limit;
  }

  /** Waiters that can no longer meet their time-out leave; waiters that are due are granted. */
  #look(): void {
    let at = this.now;
    const ahead = { ...this.#state };
    this.#line = this.#line.filter(({ id, permits, deadline }) => {
      const instant = this.#instant(ahead, at);
      if (this.#isLater(instant, deadline, ahead)) {
        this.released.set(id, undefined);
        return false;
      }
      at = instant;
      this.#use(ahead, at, permits);
      return true;
    });
    this.#go(this.now);
  }

  #go(until: number): void {
    let from = this.now;
    for (let [head] = this.#line; head !== undefined; [head] = this.#line) {
      const at = this.#instant(this.#state, from);
      if (this.#isLater(at, until, this.#state)) return;
      this.#use(this.#state, at, head.permits);
      this.released.set(head.id, at);
      this.#line.shift();
      from = at;
    }
  }

  advance(micros: number): void {
    this.#go(this.now + micros);
    this.now += micros;
  }

  ask(id: number, permits: number, wait: number): void {
    this.#line.push({ id, permits, deadline: this.now + wait });
    this.#look();
  }

  leave(id: number): void {
    this.#line = this.#line.filter((other) => other.id !== id);
    this.#look();
  }

  charge(permits: number): void {
    this.#use(this.#state, this.now, permits);
    this.#look();
  }

  refund(permits: number): void {
    this.#state.nextFree -= permits * this.#stable;
    this.#exact &&= Number.isInteger(this.#state.nextFree);
    this.#look();
  }

  pause(micros: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.now + micros);
    this.#look();
  }

  setFactor(factor: number): void {
    this.#idle(this.#state, this.now);
    const before = this.#max;
    this.#factor = factor;
    if (before > 0) this.#state.stored *= this.#max / before;
    this.#look();
  }
}
