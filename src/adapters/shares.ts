import type { ShareOptions } from "../api/limiter-api.ts";

type ValueOrFunction<T, Args extends readonly unknown[]> =
  | T
  | ((...args: Args) => T | undefined)
  | undefined;

/** The share of a call, on a fair limiter: values for all calls, or functions of what is called. */
export interface SharedBy<Args extends readonly unknown[]> {
  /** The share of a call, such as the id of a tenant. See `ShareOptions`. */
  readonly share?: ValueOrFunction<string, Args>;
  /** The weight of its share. Default 1. */
  readonly weight?: ValueOrFunction<number, Args>;
  /** Its priority. Default: the lowest. */
  readonly priority?: ValueOrFunction<string, Args>;
}

/** Returns the options of one call; `undefined` if there are none. */
export function shareOf<Args extends readonly unknown[]>(
  { share, weight, priority }: SharedBy<Args>,
  ...args: Args
): ShareOptions | undefined {
  if (share === undefined && weight === undefined && priority === undefined) return undefined;
  return {
    share: typeof share === "function" ? share(...args) : share,
    weight: typeof weight === "function" ? weight(...args) : weight,
    priority: typeof priority === "function" ? priority(...args) : priority,
  };
}
