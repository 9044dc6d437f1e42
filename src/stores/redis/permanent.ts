/**
 * Server errors that do not go away by themselves, about a key, a user or the server. Missing rights of a
 * script have no error code in Redis 6 and 7.0, and neither has a value that the script cannot read. (A
 * Cluster client wraps `MOVED`, which is temporary there.)
 */
const PERMANENT =
  /WRONGTYPE|NOPERM|NOAUTH|WRONGPASS|CROSSSLOT|^\w*Error(?: \[\w+\])?: (?:MOVED |Unauthorized)|user executing the script|unknown command|bad argument #|no limiter has written|use fewer policies|attempt to (?:call|compare|concatenate|index|perform) /;

/** The TypeErrors of `fetch` when there is no reply, in Node, browsers, Bun, Deno and workers. */
const NO_REPLY =
  /^(?:fetch failed|failed to fetch|terminated|load failed|(?:a )?network ?error|network request failed|network connection lost|error sending request)/i;

/** Whether the server is available, so that a retry does not help. */
export function isPermanent(cause: unknown): boolean {
  if (cause instanceof TypeError) return !NO_REPLY.test(cause.message);
  return PERMANENT.test(`${cause}`);
}
