import type { Limiter, ShareOptions } from "../../api/limiter-api.ts";
import { CheckedWaitOptions } from "../../api/options.ts";
import type { Permits } from "../../ground/permits.ts";
import { AT_ONCE } from "../../local/queueing-limiter.ts";
import { onAbort } from "../on-abort.ts";

/** The waiting calls of one paced function. */
export class CallQueue<This, Args extends unknown[]> {
  enabled = true;
  readonly #fn: (this: This, ...args: Args) => unknown;
  readonly #signal: AbortSignal | undefined;
  #unlisten = () => {};
  #waiting = 0;
  /** Ends the waits of all calls without a signal of their own. */
  #controller = new AbortController();
  /** One controller for each waiting call with a signal of its own. */
  readonly #own = new Set<AbortController>();
  /** The options for `acquire`: one object shared by all calls without a signal of their own. */
  options = new CheckedWaitOptions(this.#controller.signal);

  /** @param signal rejects all waiting calls when it is aborted */
  constructor(fn: (this: This, ...args: Args) => unknown, signal: AbortSignal | undefined) {
    this.#fn = fn;
    this.#signal = signal;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Calls the function when the limiter grants the call's permits. */
  wait(grant: Promise<number>, self: This, args: Args): Promise<unknown> {
    this.#waiting += 1;
    // listens only while a call waits: otherwise a long-lived signal would keep the function alive
    if (this.#waiting === 1 && !this.#signal?.aborted) {
      this.#unlisten = onAbort(this.#signal, (reason) => this.clear(reason));
    }
    // thousands may wait: a bound function takes 32 bytes less than a closure with its variables
    return grant.then(this.#start.bind(this, self, args), this.#fail);
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

  /** Requests permits for a call with options of its own; `clear` can end its wait, too. */
  acquire(
    limiter: Limiter,
    permits: Permits,
    signal: AbortSignal | undefined,
    share: ShareOptions | undefined,
  ): Promise<number> {
    if (signal === undefined) {
      return limiter.acquire(permits, { signal: this.options.signal, ...share });
    }
    const controller = new AbortController();
    const unlisten = onAbort(signal, (reason) => controller.abort(reason));
    const grant = limiter.acquire(permits, { signal: controller.signal, ...share });
    if (grant === AT_ONCE) {
      unlisten();
      return grant;
    }
    this.#own.add(controller);
    return grant.finally(() => {
      unlisten();
      this.#own.delete(controller);
    });
  }
}
