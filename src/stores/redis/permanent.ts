/**
 * What a server says of a key, a user or itself that stays as it is. Rights that a script lacks have
 * no code of their own in Redis 6 and 7.0, nor has a key whose value the script cannot read. (The
 * client of a Cluster wraps `MOVED`, which passes there.)
 */
const PERMANENT =
  /WRONGTYPE|NOPERM|NOAUTH|WRONGPASS|CROSSSLOT|^\w*Error: MOVED |user executing the script|unknown command|bad argument #|no limiter has written|attempt to (?:call|compare|concatenate|index|perform) /;

/** Whether the server is there and a retry does not help. */
export function isPermanent(cause: unknown): boolean {
  return PERMANENT.test(`${cause}`);
}
