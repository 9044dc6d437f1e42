import { sha256 } from "../ground/sha-256.ts";

/**
 * Longer values are hashed in this process too, so that clients cannot fill the memory. So are
 * values that look like a hash.
 */
const LONGEST_LOCAL = 64;

/**
 * Returns the key of an actor's value. In this process: the value itself if it is short. On Redis:
 * always a hash, because an API key should not be stored in a database.
 */
export function keyOf(value: string, scope: "local" | "global"): string {
  if (scope === "local" && value.length <= LONGEST_LOCAL && !value.startsWith("#")) return value;
  return `#${sha256(value)}`;
}
