/** The fair forms of the limiters on a store. */
import type { RemoteLimiter as Face } from "../limiter-api.ts";
import type { FairOptions } from "../options.ts";
import { FIFO } from "../order.ts";
import type { KeyedRemoteLimiter, RemoteArguments } from "../remote/keyed-remote-limiter.ts";
import { RemoteCounts } from "../remote/outage-stats.ts";
import type { RemoteLimiter } from "../remote/remote-limiter.ts";
import type { RateSetting, RemoteRateLimiter } from "../remote/remote-rate-limiter.ts";
import { orderOf } from "./fair-order.ts";
import { behind, type FairParts, FairRemoteLimiter } from "./fair-remote-limiter.ts";

type Fair = boolean | FairOptions | undefined;

/** Guava's RateLimiter on a store, shared fairly. */
class FairRemoteRateLimiter extends FairRemoteLimiter {
  readonly #limiter: RemoteRateLimiter;

  constructor(limiter: RemoteRateLimiter, parts: FairParts) {
    super(limiter, parts);
    this.#limiter = limiter;
  }

  getRate(): number {
    return this.#limiter.getRate();
  }

  async setRate(permitsPerSecond: number): Promise<RateSetting> {
    return this.changing(this.#limiter.setRate(permitsPerSecond));
  }

  async resetRate(): Promise<void> {
    await this.changing(this.#limiter.resetRate());
  }
}

/** A fair limiter that also makes one for each key, each with shares of its own. */
class FairKeyedRemoteLimiter extends FairRemoteLimiter {
  readonly #limiter: KeyedRemoteLimiter;
  readonly #parts: FairParts;
  /** By the limiter behind: it has the lifetime that the fair one needs. */
  readonly #ofKeys = new WeakMap<Face, FairRemoteLimiter>();

  constructor(limiter: KeyedRemoteLimiter, parts: FairParts) {
    super(limiter, parts);
    this.#limiter = limiter;
    this.#parts = parts;
  }

  for(key: string): Face {
    const limiter = this.#limiter.for(key);
    const known = this.#ofKeys.get(limiter);
    if (known !== undefined) return known;
    const options = { ...this.#parts.options, key };
    const made = new FairRemoteLimiter(limiter, { ...this.#parts, options });
    this.#ofKeys.set(limiter, made);
    return made;
  }
}

/**
 * Puts a fair limiter in front of one on a store, if the option asks for it.
 *
 * @param opened the arguments with which the limiter was made
 */
export function fairRate(limiter: RemoteRateLimiter, fair: Fair, opened: RemoteArguments) {
  const parts = partsOf(fair, opened);
  return parts === undefined ? limiter : new FairRemoteRateLimiter(limiter, parts);
}

/** Does the same for a limiter with keys. */
export function fairKeyed(limiter: KeyedRemoteLimiter, fair: Fair, opened: RemoteArguments) {
  const parts = partsOf(fair, opened);
  return parts === undefined ? limiter : new FairKeyedRemoteLimiter(limiter, parts);
}

/** Whether the value, or the limiter behind it, is an instance of the class. */
export function isInstance(of: { readonly prototype: object }, value: unknown): boolean {
  const limiter: unknown = (Object(value) as { [behind]?: RemoteLimiter })[behind] ?? value;
  return Object.prototype.isPrototypeOf.call(of.prototype, Object(limiter));
}

function partsOf(fair: Fair, [, , declared, options]: RemoteArguments): FairParts | undefined {
  const order = orderOf(fair);
  return order === FIFO ? undefined : { order, declared, options, counts: new RemoteCounts() };
}
