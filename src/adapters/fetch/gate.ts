import type { Limiter } from "../../limiter/face.ts";
import type { Permits } from "../../permits.ts";
import { AdaptiveRate } from "./adaptive-rate.ts";
import type { Settings } from "./options.ts";
import {
  comesBackMs,
  readQuotas,
  readRetryAfterMs,
  type ServerQuota,
} from "./rate-limit-fields.ts";
import { chargeExcess, type Sent, ServerView } from "./server-view.ts";

/** A request that may be sent now. */
export interface Admitted extends Sent {
  /** How long it stood in the limiter's line, ms. */
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
   * Waits until the limiter lets it in, and the server would too. What the limiter would let in and
   * the server would not is given back, and nobody goes until the server would.
   */
  async enter(permits: Permits, signal: AbortSignal | undefined): Promise<Admitted> {
    const { clock, maxRetryAfterMs } = this.#settings;
    await this.#open();
    let waitedMs = 0;
    for (;;) {
      waitedMs += await this.limiter.acquire(permits, { signal });
      const holdMs = this.#view.holdMs(permits, clock.now());
      // one that is longer the server may announce itself
      if (holdMs <= 0 || holdMs > maxRetryAfterMs) break;
      await this.limiter.refund(permits);
      await this.limiter.pause(holdMs);
    }
    return { ...this.#view.send(permits, clock.now()), waitedMs };
  }

  /** A response has come that is no refusal. */
  async accepted(admitted: Admitted, permits: Permits, headers: Headers): Promise<void> {
    const now = this.#settings.clock.now();
    const { atMs, waitedMs } = admitted;
    if (this.#rate?.accepted(atMs, now, waitedMs > 0)) await quietly(() => this.#applyRate());
    await this.#learn(admitted, permits, headers);
  }

  /**
   * Whether a response refuses for the sake of a limit. A 403 does where it says when to come back,
   * or that nothing remains: some servers answer so instead of 429.
   */
  isRefusal({ status, headers }: Response): boolean {
    if (status === 429 || status === 503) return true;
    if (status !== 403) return false;
    const told = readRetryAfterMs(headers, this.#epochMs());
    return told !== undefined || this.#usedUp(headers).length > 0;
  }

  /**
   * A response has come that refuses: everybody behind holds back.
   *
   * @param backoffMs how long where the server does not say
   * @returns how long to stay away, ms, and whether the limiter sees to it
   */
  async refused(
    admitted: Admitted,
    permits: Permits,
    { status, headers }: Response,
    backoffMs: number,
  ): Promise<{ waitMs: number; paused: boolean }> {
    const { maxRetryAfterMs, clock } = this.#settings;
    const told = this.#toldMs(headers);
    const waitMs = told ?? backoffMs;
    // a 503 that does not say when to come back may be about this request only
    const aboutAll = status !== 503 || told !== undefined;
    if (!aboutAll) return { waitMs, paused: false };
    const pauseMs = Math.min(waitMs, maxRetryAfterMs);
    const now = clock.now();
    // first of all, so that nobody goes meanwhile
    const paused = await quietly(() => this.limiter.pause(pauseMs));
    if (this.#rate?.refused(admitted.atMs, now, pauseMs)) await quietly(() => this.#applyRate());
    await this.#learn(admitted, permits, headers);
    return { waitMs, paused };
  }

  /** How long the server says to stay away, ms, if it does. */
  #toldMs(headers: Headers): number | undefined {
    const told = readRetryAfterMs(headers, this.#epochMs());
    if (told !== undefined) return told;
    const waits = this.#usedUp(headers)
      .map(comesBackMs)
      .filter((ms) => ms !== undefined);
    return waits.length > 0 ? Math.max(...waits) : undefined;
  }

  #usedUp(headers: Headers): readonly ServerQuota[] {
    return readQuotas(headers, this.#epochMs()).filter(({ remaining }) => remaining < 1);
  }

  /** What the server says of its limits. Where the limiter cannot be told, the response matters more. */
  async #learn(admitted: Admitted, permits: Permits, headers: Headers): Promise<void> {
    const { sync, clock, maxRetryAfterMs } = this.#settings;
    const quotas = sync ? readQuotas(headers, this.#epochMs()) : [];
    if (quotas.length === 0) return;
    this.#view.hear(admitted, quotas, clock.now());
    const holdMs = this.#view.holdMs({}, clock.now());
    await quietly(async () => {
      if (holdMs > 0 && holdMs <= maxRetryAfterMs) await this.limiter.pause(holdMs);
      await chargeExcess(this.limiter, permits, this.#view, clock.now());
    });
  }

  /** The limiter has the rate to begin with before anybody goes. */
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

/** Whether it succeeded: who has a response already is not to lose it. */
export async function quietly(deed: () => unknown): Promise<boolean> {
  try {
    await deed();
    return true;
  } catch {
    return false;
  }
}
