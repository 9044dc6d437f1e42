import type { Clock, Timer } from "../ground/clock.ts";

/** A timer that is set again and again. It keeps the process alive only while somebody waits for it. */
export class Alarm {
  readonly #clock: Clock;
  readonly #ring: () => void;
  #timer: Timer | undefined;
  #atMs = Infinity;
  #isAwaited = false;
  #isOver = false;

  constructor(clock: Clock, ring: () => void) {
    this.#clock = clock;
    this.#ring = ring;
  }

  get isAwaited(): boolean {
    return this.#isAwaited;
  }

  /** @param atMs `Infinity`: never */
  set(atMs: number, isAwaited: boolean): void {
    if (this.#isOver) return;
    if (this.#timer !== undefined && atMs === this.#atMs && isAwaited === this.#isAwaited) return;
    this.#timer?.cancel();
    this.#atMs = atMs;
    this.#isAwaited = isAwaited;
    this.#timer = atMs === Infinity ? undefined : this.#clock.wakeAt(atMs, this.#rings);
    if (!isAwaited) this.#timer?.unref?.();
  }

  /** Rings no later than then. */
  hasten(atMs: number, isAwaited: boolean): void {
    this.set(Math.min(this.#atMs, atMs), isAwaited);
  }

  /** Nobody waits for it any more. */
  leave(): void {
    this.#isAwaited = false;
    this.#timer?.unref?.();
  }

  end(): void {
    this.#isOver = true;
    this.#timer?.cancel();
  }

  readonly #rings = (): void => {
    this.#timer = undefined;
    this.#atMs = Infinity;
    this.#ring();
  };
}
