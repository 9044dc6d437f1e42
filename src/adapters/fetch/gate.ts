import type { Limiter, WaitOptions } from "../../api/limiter-api.ts";
import { chain, type MaybePromise } from "../../ground/maybe-promise.ts";

import type { Permits } from "../../ground/permits.ts";
import { AdaptiveRate } from "./adaptive-rate.ts";
import type { Settings } from "./options.ts";
import {
  comesBackMs,
  readQuotas,
  readRetryAfterMs,
  type ServerQuota,
} from "./rate-limit-fields.ts";
import { chargeExcess, type SentRequest, ServerView } from "./server-view.ts";

/** A request that may be sent now. */
export interface Admitted extends SentRequest {
  /** How long it waited for the limiter, ms. */
  readonly waitedMs: number;
}

/** A limiter, and what is known of the server behind it. */
export class Gate {
  readonly limiter: Limiter;
  readonly #settings: Settings;
  readonly #view = new ServerView();
  readonly #rate: AdaptiveRate | undefined;
  #opened: Promise<void> | undefined;

  constructor(limiter: Limiter, settings: Settings) {
    this.limiter = limiter;
    this.#settings = settings;
    const { adaptive, clock } = settings;
    this.#rate = adaptive && new AdaptiveRate(adaptive, clock.now());
  }

  /**
   * Waits until both the limiter and the server's own quota let the request pass. Permits that the
   * limiter grants too early for the server are given back, and the limiter pauses until the
   * server's quota is available.
   */
  async enter(permits: Permits, options: WaitOptions): Promise<Admitted> {
    const { clock, maxRetryAfterMs } = this.#settings;
    if (this.#rate !== undefined) await this.#open();
    let waitedMs = 0;
    for (;;) {
      waitedMs += await this.limiter.acquire(permits, options);
      const holdMs = this.#view.holdMs(permits, clock.now());
      // a longer pause is left to the server, which may refuse the request itself
      if (holdMs <= 0 || holdMs > maxRetryAfterMs) break;
      await this.limiter.refund(permits);
      await this.limiter.pause(holdMs);
    }
    const { atMs, total } = this.#view.send(permits, clock.now());
    return { atMs, total, waitedMs };
  }

  /** Handles a response that is not a refusal. */
  async accepted(admitted: Admitted, permits: Permits, headers: Headers): Promise<void> {
    const now = this.#settings.clock.now();
    const { atMs, waitedMs } = admitted;
    if (this.#rate?.accepted(atMs, now, waitedMs > 0)) await quietly(() => this.#applyRate());
    await this.#learn(admitted, permits, headers);
  }

  /**
   * Whether the server refused because of a limit. A 403 counts if it has a retry time, or a quota
   * with nothing remaining: some servers send it instead of 429.
   */
  isRefusal({ status, headers }: Response): boolean {
    if (status === 429 || status === 503) return true;
    if (status !== 403) return false;
    const statedMs = readRetryAfterMs(headers, this.#epochMs());
    return statedMs !== undefined || this.#usedUp(headers).length > 0;
  }

  /**
   * Handles a response that is a refusal: the limiter pauses for all later requests.
   *
   * @param backoffMs how long to wait if the server does not say
   * @returns how long to wait before a retry, ms, and whether the limiter was paused for that long
   */
  async refused(
    admitted: Admitted,
    permits: Permits,
    { status, headers }: Response,
    backoffMs: number,
  ): Promise<{ waitMs: number; paused: boolean }> {
    const { maxRetryAfterMs, clock } = this.#settings;
    const statedMs = this.#statedMs(headers);
    const waitMs = statedMs ?? backoffMs;
    // a 503 without a retry time may concern this request only
    const aboutAll = status !== 503 || statedMs !== undefined;
    if (!aboutAll) return { waitMs, paused: false };
    const pauseMs = Math.min(waitMs, maxRetryAfterMs);
    const now = clock.now();
    // pause before anything else, so that no request is sent meanwhile
    const paused = await quietly(() => this.limiter.pause(pauseMs));
    if (this.#rate?.refused(admitted.atMs, now, pauseMs)) await quietly(() => this.#applyRate());
    await this.#learn(admitted, permits, headers);
    return { waitMs, paused };
  }

  /** How long the server asks clients to wait, ms; undefined if it does not say. */
  #statedMs(headers: Headers): number | undefined {
    const statedMs = readRetryAfterMs(headers, this.#epochMs());
    if (statedMs !== undefined) return statedMs;
    const waits = this.#usedUp(headers)
      .map(comesBackMs)
      .filter((ms) => ms !== undefined);
    return waits.length > 0 ? Math.max(...waits) : undefined;
  }

  #usedUp(headers: Headers): readonly ServerQuota[] {
    return readQuotas(headers, this.#epochMs()).filter(({ remaining }) => remaining < 1);
  }

  /** Adopts the quotas that the response reports. Errors of the limiter must not lose the response. */
  #learn(admitted: Admitted, permits: Permits, headers: Headers): MaybePromise<unknown> {
    const { sync, clock, maxRetryAfterMs } = this.#settings;
    const quotas = sync ? readQuotas(headers, this.#epochMs()) : [];
    if (quotas.length === 0) return undefined;
    const now = clock.now();
    this.#view.update(admitted, quotas, now);
    const holdMs = this.#view.holdMs({}, now);
    return quietly(() => {
      const isHeld = holdMs > 0 && holdMs <= maxRetryAfterMs;
      return chain(isHeld ? this.limiter.pause(holdMs) : undefined, () =>
        chargeExcess(this.limiter, permits, this.#view, clock.now()),
      );
    });
  }

  /** Sets the starting rate of an adaptive limiter before the first request. */
  async #open(): Promise<void> {
    this.#opened ??= this.#applyRate();
    try {
      await this.#opened;
    } catch (error) {
      this.#opened = undefined;
      throw error;
    }
  }

  async #applyRate(): Promise<void> {
    if (this.#rate) await this.#settings.adaptive?.setRate(this.#rate.rate, this.limiter);
  }

  #epochMs(): number {
    const { clock } = this.#settings;
    return clock.now() + (clock.epochMs ?? 0);
  }
}

/** Runs an action and returns whether it succeeded; an error must not lose a response. */
export async function quietly(action: () => unknown): Promise<boolean> {
  try {
    await action();
    return true;
  } catch {
    return false;
  }
}
