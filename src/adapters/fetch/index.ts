/**
 * `smooth-limiter/fetch`: a `fetch` that keeps a rate limit, and follows the limits that the server
 * reports.
 */
export type { AdaptiveOptions } from "./adaptive-rate.ts";
export { limitedFetch } from "./limited-fetch.ts";
export type { LimitedFetchOptions } from "./options.ts";
export { type PerKeyOptions, perKey, perOrigin } from "./per-key.ts";
