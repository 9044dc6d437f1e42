import { createHash } from "node:crypto";

/**
 * Longer ones are hashed here too: what clients send must not fill the memory. So are those that
 * look like a hash.
 */
const LONGEST_LOCAL = 64;

/**
 * The key of an actor's value: in this process the value itself, as far as it is short; on Redis
 * always a hash, since an API key is nothing to leave in a database.
 */
export function keyOf(value: string, scope: "local" | "global"): string {
  if (scope === "local" && value.length <= LONGEST_LOCAL && !value.startsWith("#")) return value;
  return `#${createHash("sha256").update(value).digest("base64url")}`;
}
