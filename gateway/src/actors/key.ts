import { sha256 } from "../ground/sha-256.ts";
import type { GatewayRequest } from "../request.ts";
import type { ActorValue } from "./actor-value.ts";
import type { AddressActor } from "./address.ts";

/**
 * Longer values are hashed in this process too, so that clients cannot fill the memory. So are
 * values that look like a hash.
 */
const LONGEST_LOCAL = 64;

/**
 * How long a value may be, in characters: as much as Node accepts in header fields together. Hashing it takes about
 * 0.5 ms, and a thousand times as long for a value a thousand times as long.
 */
const LONGEST_VALUE = 16_384;

/** @throws RangeError if the value is too long to be hashed while other requests wait */
export function checkValue(name: string, value: string): string {
  if (value.length <= LONGEST_VALUE) return value;
  throw new RangeError(
    `${name} must return at most ${LONGEST_VALUE} characters, got ${value.length}: return an id or a hash of it`,
  );
}

/**
 * Returns the key of an actor's value. In this process: the value itself if it is short. On Redis:
 * always a hash, because an API key should not be stored in a database.
 */
export function keyOf(value: string, scope: "local" | "global"): string {
  if (scope === "local" && value.length <= LONGEST_LOCAL && value[0] !== "#") return value;
  return `#${sha256(value)}`;
}

/**
 * Returns the text from which the key is derived: it differs for a value and for its replacement. It is
 * the value itself where possible, because V8 hashes each newly created string again.
 *
 * @param isAlwaysMarked whether a value is marked even if it is not ambiguous
 */
function markedKey({ value, isOwn }: ActorValue, isAlwaysMarked = false): string {
  if (!isOwn) return `?${value}`;
  const isMarked = value[0] === "=" || value[0] === "?";
  return isMarked || isAlwaysMarked ? `=${value}` : value;
}

/** Returns the key of an actor under a rule of that scope. */
export function keyOfActor(actor: ActorValue, scope: "local" | "global"): string {
  return keyOf(markedKey(actor, scope === "global"), scope);
}

/**
 * Returns the key by which this process counts a request: that of its value, or else that of its
 * address, apart from the values.
 */
export function localKey(
  value: string | undefined,
  address: AddressActor,
  request: GatewayRequest,
): string {
  const actor = value ? { value, isOwn: true } : { value: address(request) ?? "", isOwn: false };
  return keyOfActor(actor, "local");
}
