/** The path of a rule: literal segments, and segments that may be anything. */
import { hidesSlash, pathOf, plainPath, readRulePath } from "./target-interpretations.ts";

/** A segment that may be anything. */
export const ANY = Symbol("any segment");

/** A literal segment, folded; or any segment. */
export type RuleSegment = string | typeof ANY;

/** How a rule writes a segment that may be anything. */
const PARAMETER = /^(?::[a-z_]\w*|\{[a-z_]\w*\}|\*)$/i;

export function isParameter(segment: string): boolean {
  return PARAMETER.test(segment);
}

/** Returns the segments of a rule's path, which contains nothing ambiguous. */
export function readPattern(path: string): readonly RuleSegment[] {
  return rawSegments(path).flatMap((raw): readonly RuleSegment[] =>
    isParameter(raw) ? [ANY] : readRulePath(raw),
  );
}

/**
 * Returns a test whether a target is at or below a path **in every interpretation**: exemptions depend on
 * it, so anything ambiguous fails. Its segments must be those of the path byte for byte, because to
 * some servers "/Health" and "/%68ealth" are other paths than "/health".
 */
export function certainlyBelow(path: string): (target: string) => boolean {
  const wanted = rawSegments(path).map((raw) => (isParameter(raw) ? ANY : spellings(raw)));
  return (target) => {
    const plain = plainPath(target);
    if (plain === undefined || hidesSlash(target, plain)) return false;
    const found = rawSegments(pathOf(target));
    return wanted.every((segment, i) => {
      const has = found[i] ?? "";
      return segment === ANY ? has !== "" : segment.includes(has);
    });
  };
}

/** Returns the ways in which clients write a segment of a rule: as it is, and escaped. */
function spellings(raw: string): readonly string[] {
  try {
    const text = decodeURIComponent(raw);
    return [raw, encodeURI(text), encodeURIComponent(text)];
  } catch {
    return [raw];
  }
}

function rawSegments(path: string): readonly string[] {
  return path.split("/").filter((segment, i) => i > 0 && segment !== "");
}
