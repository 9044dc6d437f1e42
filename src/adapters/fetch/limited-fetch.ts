import type { Limiter } from "../../api/limiter-api.ts";
import { failCheck } from "../../ground/check.ts";
import type { Permits } from "../../ground/permits.ts";
import { checkLimiter } from "../check-limiter.ts";
import { checkPermits, correct, warnUnsettled } from "../correct.ts";
import { untilAborted } from "../on-abort.ts";
import { Call, isLasting } from "./call.ts";
import { Gate, quietly } from "./gate.ts";
import { checkLimitedFetchOptions, type LimitedFetchOptions, type Settings } from "./options.ts";
import { sleep } from "./sleep.ts";

/**
 * Creates a `fetch` that keeps a rate limit. Each request waits for the limiter. The limits that
 * the server reports apply to all later requests. A refused request is retried where that is safe.
 * To limit a function other than `fetch` see `withEstimate` in `smooth-limiter/llm`.
 *
 * @param limiter the limiter of all requests, or a function that returns the limiter of a request:
 *   see `perOrigin` and `perKey`. It must return the same object for the same limit
 * @param options see `LimitedFetchOptions`
 * @returns a function with the type of `fetch`. It rejects as `fetch` does, and with the errors of
 *   `limiter.acquire`; an abort in any phase rejects with the signal's own reason
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const github = limitedFetch(RateLimiter.create(10));
 * const response = await github("https://api.github.com/zen");
 */
export function limitedFetch(
  limiter: Limiter | ((request: Request) => Limiter | Promise<Limiter>),
  options: LimitedFetchOptions = {},
): typeof globalThis.fetch {
  const settings = checkLimitedFetchOptions(options);
  if (typeof limiter !== "function") checkLimiter(limiter, "a rate limiter or a function");
  const gates = new WeakMap<Limiter, Gate>();
  const gateOf = (own: Limiter) => {
    const gate = gates.get(own) ?? new Gate(checkLimiter(own), settings);
    gates.set(own, gate);
    return gate;
  };

  const exchange = async (call: Call, send: () => Promise<Response>) => {
    const own = typeof limiter === "function" ? await limiter(call.request.clone()) : limiter;
    const { permits: cost } = settings;
    const permits = typeof cost === "function" ? await cost(call.request.clone()) : cost;
    return new Exchange(gateOf(own), settings, call, permits, send).run();
  };

  return async (input, init) => {
    const call = new Call(input, init);
    const { signal } = call;
    signal?.throwIfAborted();
    const send = () => (settings.fetch ?? globalThis.fetch)(input, init);
    // the functions and stores that a call awaits may never return
    return untilAborted(signal, exchange(call, send));
  };
}

/** One call of the limited fetch, with all its attempts. */
class Exchange {
  readonly #gate: Gate;
  readonly #settings: Settings;
  readonly #call: Call;
  readonly #permits: Permits;
  readonly #send: () => Promise<Response>;

  constructor(
    gate: Gate,
    settings: Settings,
    call: Call,
    permits: Permits,
    send: () => Promise<Response>,
  ) {
    this.#gate = gate;
    this.#settings = settings;
    this.#call = call;
    this.#permits = permits;
    this.#send = send;
  }

  async run(): Promise<Response> {
    for (let attempt = 0; ; attempt++) {
      const response = await this.#attempt(attempt);
      if (response !== undefined) return response;
    }
  }

  /** The response, or `undefined` if the request must be retried. */
  async #attempt(attempt: number): Promise<Response | undefined> {
    const options = this.#settings.waitOptions(this.#call);
    const admitted = await this.#gate.enter(this.#permits, options);
    const response = await this.#sendOrFail(attempt);
    if (response === undefined) return undefined;
    if (!this.#gate.isRefusal(response)) {
      await this.#gate.accepted(admitted, this.#permits, response.headers);
      if (response.status >= 400) await this.#giveBack();
      else this.#settle(response);
      return response;
    }

    const backoffMs = this.#backoffMs(attempt);
    const { waitMs, paused } = await this.#gate.refused(
      admitted,
      this.#permits,
      response,
      backoffMs,
    );
    await this.#giveBack();
    const { retries, maxRetryAfterMs } = this.#settings;
    if (attempt >= retries || waitMs > maxRetryAfterMs || !this.#mayRepeat(response.status)) {
      return response;
    }
    // the body is not read; cancelling it frees the connection
    await quietly(() => response.body?.cancel());
    if (!paused) await sleep(this.#settings.clock, waitMs, this.#call.signal);
    return undefined;
  }

  /** The response, or `undefined` if the request got no response and must be retried. */
  async #sendOrFail(attempt: number): Promise<Response | undefined> {
    const { signal, repeatable, idempotent } = this.#call;
    let response: unknown;
    try {
      response = await this.#send();
    } catch (error) {
      // after an abort it is unknown how far the request came
      if (signal?.aborted) throw error;
      await this.#giveBack();
      if (attempt >= this.#settings.retries || !repeatable || !idempotent) throw error;
      if (isLasting(error, this.#call.url)) throw error;
      await sleep(this.#settings.clock, this.#backoffMs(attempt), signal);
      return undefined;
    }
    // undefined, which a mock returns, would be retried without an end
    if (typeof response === "object" && response !== null) return response as Response;
    failCheck("the result of fetch", "a Response", response);
  }

  #mayRepeat(status: number): boolean {
    const { repeatable, idempotent } = this.#call;
    return repeatable && (idempotent || (status !== 503 && this.#settings.retryNonIdempotent));
  }

  /** Half of it is random, so that requests that failed together are not retried together. */
  #backoffMs(attempt: number): number {
    const { backoffMs, maxRetryAfterMs } = this.#settings;
    return Math.min(maxRetryAfterMs, backoffMs * 2 ** attempt) * (0.5 + Math.random() / 2);
  }

  /** Gives back permits, because the request failed. */
  async #giveBack(): Promise<void> {
    const { failed } = this.#settings;
    if (failed === undefined) return;
    await quietly(() => correct(this.#gate.limiter, this.#permits, failed));
  }

  /** Corrects the permits to what was used, while the caller reads the response. */
  #settle(response: Response): void {
    const { used } = this.#settings;
    if (used === undefined || !response.ok) return;
    const { limiter } = this.#gate;
    const settle = async () => {
      const actual = await used(response.clone());
      if (actual === undefined) return;
      checkPermits("used", actual);
      await correct(limiter, this.#permits, actual);
    };
    void settle()
      .catch((error) => {
        // an abort also ends the copy of the response
        if (this.#call.signal?.aborted) return;
        warnUnsettled("limitedFetch: used() returned no usable number", limiter, error);
      })
      .catch(() => {});
  }
}
