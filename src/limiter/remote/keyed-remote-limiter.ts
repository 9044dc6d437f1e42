import { TripCounter } from "../../stores/trip.ts";
import type { RemoteLimiter as Face } from "../face.ts";
import { RemoteLimiter } from "./remote-limiter.ts";
import { checkKey } from "./shared-options.ts";

/** What a limiter on a store is made of. */
export type Opened = ConstructorParameters<typeof RemoteLimiter>;

/** A limiter on a store, and one for each key under the same policies. */
export class KeyedRemoteLimiter extends RemoteLimiter {
  readonly #make: (key: string) => RemoteLimiter;
  readonly #limiters = new Map<string, WeakRef<RemoteLimiter>>();
  readonly #dropped = new FinalizationRegistry<string>((key) => {
    // unless there is a new one by now
    if (!this.#limiters.get(key)?.deref()) this.#limiters.delete(key);
  });

  constructor(...opened: Opened) {
    super(...opened);
    const [store, ownKey, policies, options] = opened;
    const { outageStats, processes } = this;
    // one entry in the state of a key for this process, however often the key's limiter is made anew
    const trips = new TripCounter();
    this.#make = (key) => {
      const own = { name: `${options.name}[${key}`, key, outageStats, processes, trips };
      return new RemoteLimiter(store, `${ownKey}[${key}`, policies, { ...options, ...own });
    };
  }

  /**
   * The limiter of a key, under the same policies: one for each user, address or URL. Every call with
   * the same key gives the same object, as long as it is referenced or a caller waits in it.
   *
   * @param key any well-formed text
   * @throws RangeError or TypeError that names the argument, its bound and what it got
   * @example
   * if (!(await limiter.for(user).tryAcquire())) return tooManyRequests();
   */
  for(key: string): Face {
    const known = this.#limiters.get(checkKey("key", key))?.deref();
    if (known !== undefined) return known;
    this.checkOpen();
    const limiter = this.#make(key);
    this.#limiters.set(key, new WeakRef(limiter));
    this.#dropped.register(limiter, key);
    return limiter;
  }

  /** As that of every limiter; and ends those of its keys. */
  override async close(): Promise<void> {
    const limiters = Array.from(this.#limiters.values(), (limiter) => limiter.deref());
    await Promise.all([super.close(), ...limiters.map((limiter) => limiter?.close())]);
  }
}
