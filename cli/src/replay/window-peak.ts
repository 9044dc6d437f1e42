/** Two instants that are a window apart may differ from it by this much when they are subtracted, ms. */
const ROUNDING_MS = 0.001;

/** Finds the most requests in any window, its beginning excluded. Memory holds the instants of one window. */
export class WindowPeak {
  most = 0;
  readonly #windowMs: number;
  /** The instants of the latest window from `#from` on, and how many requests each has. */
  #times: number[] = [];
  #counts: number[] = [];
  #from = 0;
  #sum = 0;

  constructor(windowMs: number) {
    this.#windowMs = windowMs - ROUNDING_MS;
  }

  /** @param atMs not before the last one; an earlier time counts as the last one */
  add(atMs: number): void {
    const last = this.#times.length - 1;
    const newestMs = this.#times[last] ?? -Infinity;
    if (atMs > newestMs) {
      this.#times.push(atMs);
      this.#counts.push(1);
      this.#forget(atMs - this.#windowMs);
    } else this.#counts[last] = (this.#counts[last] ?? 0) + 1;
    this.#sum += 1;
    this.most = Math.max(this.most, this.#sum);
  }

  #forget(untilMs: number): void {
    while ((this.#times[this.#from] ?? Infinity) <= untilMs) {
      this.#sum -= this.#counts[this.#from] ?? 0;
      this.#from += 1;
    }
    // each entry is moved once on average
    if (2 * this.#from < this.#times.length) return;
    this.#times = this.#times.slice(this.#from);
    this.#counts = this.#counts.slice(this.#from);
    this.#from = 0;
  }
}
