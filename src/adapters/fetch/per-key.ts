import type { Limiter } from "../../api/limiter-api.ts";
import { checkFunction, checkNumber, checkOptions, wholeAtLeastOne } from "../../ground/check.ts";
import { type Linked, LinkedList } from "../../ground/linked-list.ts";

/** The options of `perKey` and `perOrigin`. */
export interface PerKeyOptions {
  /**
   * How many limiters are kept. A whole number, 1 or more, default 1000. Beyond that the limiter
   * that has been unused for longest is dropped: requests that wait there continue to wait, and later
   * requests with that key get a new limiter.
   */
  readonly maxKeys?: number | undefined;
}

interface Entry extends Linked<Entry> {
  readonly key: string;
  readonly limiter: Limiter;
}

/**
 * Creates a limiter for each key of a request, for `limitedFetch`.
 *
 * @param keyOf returns the key of a request: its host, a header, a part of its path
 * @param make creates the limiter of a key at its first request
 * @param options `maxKeys`: how many are kept (default 1000)
 * @returns a function that returns the limiter of a request
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const byTenant = perKey(
 *   (request) => request.headers.get("x-tenant") ?? "",
 *   (tenant) => redisLimiter.for(tenant),
 * );
 * const api = limitedFetch(byTenant);
 */
export function perKey(
  keyOf: (request: Request) => string,
  make: (key: string) => Limiter,
  options: PerKeyOptions = {},
): (request: Request) => Limiter {
  checkFunction("keyOf", keyOf);
  checkFunction("make", make);
  checkOptions("options", options, ["maxKeys"]);
  const maxKeys = checkNumber("maxKeys", options.maxKeys ?? 1000, wholeAtLeastOne);
  const entries = new Map<string, Entry>();
  // not the order of the Map: its first key is searched for among all that were deleted in front of it
  const byUse = new LinkedList<Entry>();
  return (request) => {
    const key = keyOf(request);
    const known = entries.get(key);
    if (known !== undefined) byUse.remove(known);
    const entry = known ?? { key, limiter: make(key), before: undefined, after: undefined };
    byUse.add(entry);
    entries.set(key, entry);
    const { first } = byUse;
    if (entries.size > maxKeys && first !== undefined) {
      byUse.remove(first);
      entries.delete(first.key);
    }
    return entry.limiter;
  };
}

/**
 * Creates a limiter for each origin (`https://api.example.com`), for `limitedFetch`.
 *
 * @param make creates the limiter of an origin at its first request
 * @param options `maxKeys`: how many are kept (default 1000)
 * @returns a function that returns the limiter of a request
 * @throws RangeError or TypeError on a bad argument
 * @example
 * const polite = limitedFetch(perOrigin(() => RateLimiter.create(2)));
 */
export function perOrigin(
  make: (origin: string) => Limiter,
  options: PerKeyOptions = {},
): (request: Request) => Limiter {
  return perKey((request) => new URL(request.url).origin, make, options);
}
