/**
 * Limits that operators keep elsewhere, under keys of their own: in the numbers of the policies such a
 * limit is written `$fallback@which`.
 */
import type { LimitNote } from "./store.ts";

export interface Resolved {
  /** With the limits in their places, or their fallbacks. */
  readonly numbers: string;
  /** Of policies for which the text is 0, or no limit. */
  readonly notes: readonly LimitNote[];
  /** The policies whose limit is 0: they let nothing through, and their state is kept by the fallback. */
  readonly closed: ReadonlySet<number>;
}

/** @param texts what stands under the keys; undefined: nothing does */
export function resolveLimits(
  declared: string,
  texts: readonly (string | undefined)[] = [],
): Resolved {
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

/** As Lua's "%.17g" writes it: the text is a part of the state. */
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

/** As `frame.lua` sends a text that is no limit. */
function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is replaced
  return text.slice(0, 40).replace(/[\u0000-\u001f\u007f!]/g, " ");
}
