/** Encodes arguments that all stores pass to scripts, and decodes the scripts' replies. */
import { toMillis } from "../../ground/clock.ts";
import type { BatchId } from "../batch-id.ts";
import {
  type Answer,
  AT_ONCE,
  type LimitNote,
  type PolicyQuota,
  REFUSED,
  type StoreReply,
} from "../store.ts";
import { coldTwins } from "./lua.gen.ts";

/** The complete reply to a batch that was run before. */
export const REPEATED = "repeated";

/** Returns the caller and the number of a batch as two arguments of a script. */
export function encodeBatchId(batchId: BatchId | undefined): readonly [string, string] {
  return batchId === undefined ? ["", "0"] : [batchId.caller, String(batchId.number)];
}

/** Decodes the numbers in force, other versions, and the notes about limits that are kept in keys. */
export function decodeNotes(text: string): Pick<StoreReply, "inForce" | "others" | "notes"> {
  if (!/[!?]/.test(text)) return { inForce: text };
  const [head = "", ...notes] = text.split("!");
  const [inForce = "", ...others] = head.split("?");
  return {
    inForce,
    ...(notes.length > 0 && { notes: notes.map(decodeNote) }),
    ...(others.length > 0 && { others: others.map(algorithmsOf) }),
  };
}

/** @param codes those of a version's algorithms, each in a line */
function algorithmsOf(codes: string): string {
  const nameOf = (code: string) => coldTwins.find((twin) => twin.code === code)?.name ?? code;
  return codes.split("\n").map(nameOf).join(" + ");
}

function decodeNote(text: string): LimitNote {
  const end = text.indexOf("=");
  if (end < 0) return { policy: Number(text) - 1, ignored: undefined };
  return { policy: Number(text.slice(0, end)) - 1, ignored: text.slice(end + 1) };
}

/** Decodes the wait, the slowest policy, and for each policy its quota and whether it alone would grant. */
export function decodeStanding(text: string): Answer {
  const [wait = NaN, slowest = 0, ...values] = text.split(" ").map(decodeNumber);
  const quotas: PolicyQuota[] = [];
  for (let i = 0; i + 4 < values.length; i += 5) {
    const [limit = 0, remaining = 0, reset = 0, window = 0, isOpen] = values.slice(i, i + 5);
    quotas.push({
      allowed: isOpen === 1,
      limit,
      remaining,
      resetMs: toMillis(reset),
      windowMs: window / 1000,
    });
  }
  return { ...AT_ONCE, wait, slowest, quotas };
}

export function decodeNumber(text: string): number {
  if (text === "no") return REFUSED;
  const number = Number(text);
  return Number.isNaN(number) ? Infinity : number; // "inf", "never"
}
