/**
 * SHA-256 at once, on every platform: `crypto.subtle` answers a promise, and `node:crypto` exists on Node only.
 */
import { sha256 as hash } from "@noble/hashes/sha2";

/** Returns the SHA-256 of the text's UTF-8 form, in base64url without padding. */
export function sha256(text: string): string {
  const binary = String.fromCharCode(...hash(new TextEncoder().encode(text)));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace("=", "");
}
