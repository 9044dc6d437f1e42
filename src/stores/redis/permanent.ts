/**
 * Server errors that do not go away by themselves, about a key, a user or the server. Missing rights of a
 * script have no error code in Redis 6 and 7.0, and neither has a value that the script cannot read. (A
 * Cluster client wraps `MOVED`, which is temporary there.)
 */
const PERMANENT =
  /WRONGTYPE|NOPERM|NOAUTH|WRONGPASS|CROSSSLOT|^\w*Error: MOVED |user executing the script|unknown command|bad argument #|no limiter has written|use fewer policies|attempt to (?:call|compare|concatenate|index|perform) /;

/** Whether the server is available, so that a retry does not help. */
export function isPermanent(cause: unknown): boolean {
  return cause instanceof TypeError || PERMANENT.test(`${cause}`);
}
