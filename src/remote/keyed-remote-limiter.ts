import type { Policy } from "../algorithms/algorithm.ts";
import type { RemoteLimiter as Face } from "../api/limiter-api.ts";
import type { CallerRecord } from "../stores/batch-id.ts";
import { RemoteLimiter } from "./remote-limiter.ts";
import { checkKey } from "./remote-options.ts";

/** The constructor arguments of a limiter on a store. */
export type RemoteArguments = ConstructorParameters<typeof RemoteLimiter>;

/** What a limiter on a store has beside the verbs of all limiters. */
export interface KeyedVerbs<Name extends string> {
  /**
   * Returns the limiter of a key, under the same policies: one for each user, address or URL. Every call
   * with the same key returns the same object, as long as it is referenced or a caller waits in it.
   *
   * @param key any well-formed text
   * @throws RangeError or TypeError on a bad argument
   * @example
   * if (!(await limiter.for(user).tryAcquire())) return tooManyRequests();
   */
  for(key: string): Face<Name>;
  /** The policies in force, by the last reply; before the first reply, the declared ones. */
  readonly policies: readonly Policy[];
}

export class KeyedRemoteLimiter extends RemoteLimiter implements KeyedVerbs<string> {
  readonly #make: (key: string) => RemoteLimiter;
  readonly #limiters = new Map<string, WeakRef<RemoteLimiter>>();
  readonly #dropped = new FinalizationRegistry<string>((key) => {
    // the key may have a new limiter by now
    if (!this.#limiters.get(key)?.deref()) this.#limiters.delete(key);
  });

  constructor(...opened: RemoteArguments) {
    super(...opened);
    const [store, ownKey, policies, options] = opened;
    const { outageStats } = this;
    // shared, so that this process has the same entries in a key's state however often its limiter is created again
    const callers: CallerRecord[] = [];
    this.#make = (key) => {
      const own = { name: `${options.name}[${key}`, key, outageStats, callers };
      return new RemoteLimiter(store, `${ownKey}[${key}`, policies, { ...options, ...own });
    };
  }

  for(key: string): RemoteLimiter {
    const known = this.#limiters.get(key)?.deref();
    if (known !== undefined) return known;
    checkKey("key", key);
    this.checkOpen();
    const limiter = this.#make(key);
    this.#limiters.set(key, new WeakRef(limiter));
    this.#dropped.register(limiter, key);
    return limiter;
  }

  /** Ends this limiter as `RemoteLimiter.close` does, and the limiters of all its keys. */
  override async close(): Promise<void> {
    const limiters = Array.from(this.#limiters.values(), (limiter) => limiter.deref());
    await Promise.all([super.close(), ...limiters.map((limiter) => limiter?.close())]);
  }
}
