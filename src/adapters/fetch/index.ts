/**
 * `smooth-limiter/fetch`: a `fetch` that keeps a limit, and heeds the server's own.
 */
export type { AdaptiveOptions } from "./adaptive-rate.ts";
export { limitedFetch } from "./limited-fetch.ts";
export type { LimitedFetchOptions } from "./options.ts";
export { type PerKeyOptions, perKey, perOrigin } from "./per-key.ts";
