import type { Limiter } from "../../limiter/face.ts";
import { AT_ONCE } from "../../limiter/limiter.ts";
import { CheckedWaitOptions } from "../../limiter/options.ts";
import type { Permits } from "../../permits.ts";
import { onAbort } from "../on-abort.ts";

/** The calls of one paced function that wait. */
export class CallLine<This, Args extends unknown[]> {
  enabled = true;
  readonly #fn: (this: This, ...args: Args) => unknown;
  readonly #signal: AbortSignal | undefined;
  #unlisten = () => {};
  #waiting = 0;
  /** Ends the waits of the calls that have no signal of their own. */
  #controller = new AbortController();
  /** One for each call that has. */
  readonly #own = new Set<AbortController>();
  /** For `acquire`: the same object for all calls. */
  options = new CheckedWaitOptions(this.#controller.signal);

  /** @param signal rejects all calls that wait when it is aborted */
  constructor(fn: (this: This, ...args: Args) => unknown, signal: AbortSignal | undefined) {
    this.#fn = fn;
    this.#signal = signal;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Calls the function when it is its turn. */
  wait(turn: Promise<number>, self: This, args: Args): Promise<unknown> {
    this.#waiting += 1;
    // it listens only while a call waits: a long-lived signal would otherwise hold the function
    if (this.#waiting === 1 && !this.#signal?.aborted) {
      this.#unlisten = onAbort(this.#signal, (reason) => this.clear(reason));
    }
    // thousands may wait: a bound function is 32 bytes smaller than a closure and what it holds
    return turn.then(this.#start.bind(this, self, args), this.#fail);
  }

  #start(self: This, args: Args): unknown {
    this.#leave();
    return this.#fn.apply(self, args);
  }

  #leave(): void {
    this.#waiting -= 1;
    if (this.#waiting === 0) this.#unlisten();
  }

  readonly #fail = (error: unknown): never => {
    this.#leave();
    throw error;
  };

  clear(reason: unknown = new DOMException("The waiting calls were cleared", "AbortError")): void {
    const waiting = [this.#controller, ...this.#own];
    this.#controller = new AbortController();
    this.options = new CheckedWaitOptions(this.#controller.signal);
    for (const controller of waiting) controller.abort(reason);
  }

  /** For a call that has a signal of its own, which `clear` must be able to end too. */
  acquire(limiter: Limiter, permits: Permits, signal: AbortSignal): Promise<number> {
    const controller = new AbortController();
    const unlisten = onAbort(signal, (reason) => controller.abort(reason));
    const turn = limiter.acquire(permits, { signal: controller.signal });
    if (turn === AT_ONCE) {
      unlisten();
      return turn;
    }
    this.#own.add(controller);
    return turn.finally(() => {
      unlisten();
      this.#own.delete(controller);
    });
  }
}
