/**
 * Limits that operators keep under keys of their own: in the numbers of the policies such a limit is
 * written `$fallback@index`, with the index of its key from 1.
 */
import type { LimitNote } from "./store.ts";

export interface Resolved {
  /** The numbers with the limits filled in, or their fallbacks. */
  readonly numbers: string;
  /** A note for each policy with a text that is 0 or not a limit. */
  readonly notes: readonly LimitNote[];
  /** The policies with a limit of 0: they reject all requests; their state uses the fallback limit. */
  readonly closed: ReadonlySet<number>;
}

const NONE: ReadonlySet<number> = new Set();

/** @param texts the values of the keys; undefined: the key is absent */
export function resolveLimits(
  declared: string,
  texts: readonly (string | undefined)[] = [],
): Resolved {
  if (!declared.includes("$")) return { numbers: declared, notes: [], closed: NONE };
  const notes: LimitNote[] = [];
  const closed = new Set<number>();
  const lines = declared.split("\n").map((line, policy) =>
    line.replace(/\$(\S+?)@(\d+)/g, (_, fallback: string, which: string) => {
      const text = texts[Number(which) - 1];
      const limit = text?.trim() ? Number(text) : Number.NaN;
      if (limit > 0 && limit < Infinity) return exactText(limit);
      if (text === undefined || notes.some((note) => note.policy === policy)) return fallback;
      if (limit === 0) closed.add(policy);
      notes.push({ policy, ignored: limit === 0 ? undefined : printable(text) });
      return fallback;
    }),
  );
  return { numbers: lines.join("\n"), notes, closed };
}

/** Formats a number like Lua's "%.17g", because the text is a part of the state. */
function exactText(number: number): string {
  const [digits = "", power] = number.toExponential(16).split("e");
  const exponent = Number(power);
  if (exponent >= -4 && exponent < 17) return withoutZeros(number.toPrecision(17));
  const sign = exponent < 0 ? "-" : "+";
  return `${withoutZeros(digits)}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

function withoutZeros(digits: string): string {
  return digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
}

/** Returns a text that is not a limit in the form in which `transition.lua` sends it. */
function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is replaced
  return text.slice(0, 40).replace(/[\u0000-\u001f\u007f!]/g, " ");
}
