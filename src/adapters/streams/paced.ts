import type { Limiter } from "../../api/limiter-api.ts";
import { failCheck } from "../../ground/check.ts";
import { onAbort } from "../on-abort.ts";
import { Credit } from "./credit.ts";
import {
  type CheckedStreamOptions,
  checkPaceOptions,
  headOf,
  type PaceOptions,
  restOf,
  sizeOf,
  type Weigh,
  type WeighedOptions,
} from "./options.ts";

/**
 * Paces an iterable, for `for await`: one of bytes, or of any items with `weigh`. Items pass unchanged
 * and in order; the next item is requested when the consumer asks for more.
 *
 * @param iterable an iterable of `Uint8Array`, which may be cut; or of any items with `weigh`, which are
 *   not cut
 * @param limiter any limiter of this package, in this process or on Redis
 * @param weigh a function that returns the cost of an item in permits, 0 or more; or the options of
 *   `throttle` with `weigh`. The signal ends a wait for permits, but not a wait for the source
 * @returns the items; leaving the loop also ends the source
 * @throws RangeError or TypeError on a bad argument; during the
 *   iteration, what the limiter throws or the signal's own reason
 * @example
 * for await (const row of paced(rows, limiter, () => 1)) await insert(row);
 */
export function paced<Bytes extends Uint8Array>(
  iterable: AsyncIterable<Bytes> | Iterable<Bytes>,
  limiter: Limiter,
  options?: PaceOptions,
): AsyncGenerator<Bytes, void, undefined>;
export function paced<T>(
  iterable: AsyncIterable<T> | Iterable<T>,
  limiter: Limiter,
  weigh: Weigh<T> | WeighedOptions<T>,
): AsyncGenerator<T, void, undefined>;
export function paced<T>(
  iterable: AsyncIterable<T> | Iterable<T>,
  limiter: Limiter,
  how: Weigh<T> | (PaceOptions & Partial<WeighedOptions<T>>) = {},
): AsyncGenerator<T, void, undefined> {
  const options = typeof how === "function" ? { weigh: how } : how;
  const checked = checkPaceOptions(limiter, options);
  const { [Symbol.asyncIterator]: later, [Symbol.iterator]: now } = Object(iterable);
  if (typeof later !== "function" && typeof now !== "function") {
    failCheck("iterable", "iterable", iterable);
  }
  return pass(iterable, limiter, checked);
}

async function* pass<T>(
  iterable: AsyncIterable<T> | Iterable<T>,
  limiter: Limiter,
  options: CheckedStreamOptions<T>,
): AsyncGenerator<T, void, undefined> {
  const { weigh, signal } = options;
  const credit = new Credit(limiter, options);
  const unlisten = onAbort(signal, (reason) => credit.close(reason));
  try {
    signal?.throwIfAborted();
    for await (const item of iterable) {
      signal?.throwIfAborted();
      let rest = item;
      for (let left = sizeOf(item, weigh); ; ) {
        const size = credit.take(left);
        if (size === left) break;
        if (size === undefined) {
          const bought = credit.buy(left);
          if (bought !== undefined) await bought;
        } else {
          yield headOf(rest, size);
          rest = restOf(rest, size);
          left -= size;
        }
      }
      yield rest;
    }
  } finally {
    unlisten();
    credit.close();
  }
}
