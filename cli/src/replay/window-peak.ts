const STEPS = 100;

/**
 * The most requests in any window, with a hundred numbers in memory. Time is cut into hundredths of
 * the window, and a hundred consecutive ones are added up. The result is never more than the most
 * of any window, and never less than the most of any interval that is a hundredth shorter.
 */
export class WindowPeak {
  most = 0;
  readonly #stepMs: number;
  readonly #counts = new Uint32Array(STEPS);
  #newest = -Infinity;
  #sum = 0;

  constructor(windowMs: number) {
    this.#stepMs = windowMs / STEPS;
  }

  /** @param atMs not before the last one; an earlier time counts as now */
  add(atMs: number): void {
    this.#moveTo(Math.floor(atMs / this.#stepMs));
    const at = this.#newest % STEPS;
    this.#counts[at] = (this.#counts[at] as number) + 1;
    this.#sum += 1;
    if (this.#sum > this.most) this.most = this.#sum;
  }

  /** Resets to the initial state. */
  reset(): void {
    if (this.#sum > 0) this.#counts.fill(0);
    this.#sum = 0;
    this.#newest = -Infinity;
    this.most = 0;
  }

  #moveTo(step: number): void {
    if (step <= this.#newest) return;
    if (step - this.#newest >= STEPS) {
      if (this.#sum > 0) this.#counts.fill(0);
      this.#sum = 0;
    } else {
      for (let i = this.#newest + 1; i <= step; i++) {
        this.#sum -= this.#counts[i % STEPS] as number;
        this.#counts[i % STEPS] = 0;
      }
    }
    this.#newest = step;
  }
}
