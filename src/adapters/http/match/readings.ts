/**
 * What a request target may mean. Servers disagree: one routes the path as it came, another resolves
 * ".." first, a third decodes "%2f" before it looks for slashes. A rule that saw only one of these
 * could be bypassed through another, so a target is held to the rules of every way to read it.
 *
 * Those ways are not listed, since their number multiplies: where the path begins and ends, what
 * separates segments, when dots are resolved, when escapes are decoded. Two facts replace the list:
 *
 * - Without ".." every way takes segments from the front. A rule's segments hold no separator and
 *   nothing that ends a path. So if the beginning of a target equals them in any way, it equals them
 *   in the finest one: decoded once, cut at each kind of slash, each segment without its parameters.
 * - With "..", or where even the beginning of the path is in doubt, whatever a server resolves is
 *   made of segments that the target holds. So each rule holds of which all segments occur in it.
 *
 * Both are linear in the length of the target. The second one may hold a request to more rules than
 * it would meet anywhere; clients resolve ".." themselves, so this concerns crafted targets only.
 */
import { decode } from "./decode.ts";

/** A way to read a path: its segments, folded, one after the other: most are left before their end. */
export type Reading = Iterable<string>;

/** Of a target that can be read in too many ways: the known segments that occur in any of them. */
export type Parts = ReadonlySet<string>;

/** What keeps a path from being read as it stands. */
const TRICK = /[^!-~]|[%\\;#]|\/\/|\.(?:\/|$)/;
/** The same once it is decoded. */
const HIDDEN = /[\\;#?]|[^ -~\xa0-\uffff]|\/\/|[. ](?:\/|$)/;
/** Of a query: it may climb out of itself where a server does not cut it off. */
const CLIMBS = /(?:[/\\]|%2f|%5c)(?:\.|%2e)/i;
/** In absolute form, in front of the path: a host that each server finds the end of. */
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]*)?(?=\/)/i;
const HOST = /^[a-z0-9._-]*(?::[0-9]*)?$/i;
const CONTROL = /[^ -~\xa0-\uffff]/;
const CONTROLS = /[^ -~\xa0-\uffff]+/g;
/** What some server takes for "..". */
const DOTS = /(?:^|[/\\])[ \p{Cc}]*\.[ \p{Cc}]*\.[. \p{Cc}]*(?:[/\\;?#]|$)/u;
/** What ends a path, or begins parameters, and what follows in the same piece. */
const MARKED = /[;?#][^/\\]*/g;
/** A NUL ends a path too, for what is written in C. */
const MARKED_IN_C = /[;?#\0][^/\\]*/g;
const SLASH = 0x2f;
const BACKSLASH = 0x5c;
const SEMICOLON = 0x3b;
const QUESTION_MARK = 0x3f;
const NUMBER_SIGN = 0x23;
const DOT = 0x2e;
const BLANK = 0x20;
/** More marks on one letter than any language has: to order them takes the square of their number. */
const TOO_MANY_MARKS = /\p{M}{31,}/gu;

/** The path, decoded and folded, of a target that can be read in one way only; undefined for all others. */
export function plainPath(target: string): string | undefined {
  const whole = target.startsWith("/") ? target : withoutOrigin(target);
  if (!whole.startsWith("/")) return undefined;
  const end = whole.indexOf("?");
  if (end >= 0 && CLIMBS.test(whole.slice(end))) return undefined;
  const path = end < 0 ? whole : whole.slice(0, end);
  if (!TRICK.test(path)) return path.toLowerCase();
  // decoding takes none of these away
  if (HIDDEN.test(path)) return undefined;
  const decoded = fold(decode(path));
  return HIDDEN.test(decoded) ? undefined : decoded;
}

/**
 * @param target as the client sent it; origin form, absolute form, "*" or an authority
 * @param known the segments of all rules
 * @returns the readings, one or two; or the parts where there would be more
 */
export function readTarget(target: string, known: ReadonlySet<string>): readonly Reading[] | Parts {
  // URL parsers do not see these
  const whole = withoutOrigin(target.replace(/[\t\n\r]/g, ""));
  const end = whole.indexOf("?");
  const path = fold(decode(end < 0 ? whole : whole.slice(0, end)));
  const query = end < 0 ? "" : fold(decode(whole.slice(end)));
  if (!/^[/\\]/.test(path) || CONTROL.test(path) || DOTS.test(path) || DOTS.test(query)) {
    return partsOf(`${path}/${query}`, known);
  }
  // "//a/b" is a path to some servers, and to a URL parser host and path
  const [beginning, host] = /^[/\\]{2,}([^/\\]*)/.exec(path) ?? [];
  if (beginning === undefined || host === undefined) return [segmentsOf(path)];
  if (!HOST.test(host)) return partsOf(path, known);
  return [segmentsOf(path), segmentsOf(path.slice(beginning.length))];
}

/** The one reading of a rule's own path, which has no trick in it. */
export function readRulePath(path: string): readonly string[] {
  return [...segmentsOf(fold(decode(path)))];
}

/** The letters that differ by case alone, and those that are written in two ways, are the same. */
function fold(text: string): string {
  if (!/[^\0-\x7f]/.test(text)) return text.toLowerCase();
  // nothing in Latin-1 is written in two ways
  if (!/[^\0-\xff]/.test(text)) return text.toUpperCase().toLowerCase();
  const composed = text.replace(TOO_MANY_MARKS, "").normalize("NFC");
  return composed.toUpperCase().toLowerCase().normalize("NFC");
}

function withoutOrigin(target: string): string {
  if (target.startsWith("/")) return target;
  const origin = ORIGIN.exec(target)?.[0];
  return origin === undefined ? target : target.slice(origin.length);
}

/**
 * Up to what ends the path; each without parameters, and without dots and blanks at its end, which
 * Windows drops. What is empty then is left out.
 */
function* segmentsOf(path: string): Generator<string> {
  let start = 0;
  let mark = -1;
  for (let at = 0; at <= path.length; at++) {
    const code = at < path.length ? path.charCodeAt(at) : SLASH;
    const endsPath = code === QUESTION_MARK || code === NUMBER_SIGN;
    if (code === SEMICOLON && mark < 0) mark = at;
    if (code !== SLASH && code !== BACKSLASH && !endsPath) continue;
    let end = mark < 0 ? at : mark;
    while (end > start && isDropped(path.charCodeAt(end - 1))) end -= 1;
    if (end > start) yield path.slice(start, end);
    if (endsPath) return;
    start = at + 1;
    mark = -1;
  }
}

function isDropped(code: number): boolean {
  return code === DOT || code === BLANK;
}

/** Each piece up to what ends a path or begins parameters. */
function partsOf(text: string, known: ReadonlySet<string>): Parts {
  const parts = new Set<string>();
  const whole = `${text}/${headsOf(text).join("/")}`;
  for (const marked of whole.includes("\0") ? [MARKED, MARKED_IN_C] : [MARKED]) {
    const bare = whole.replace(marked, "").replace(CONTROLS, "");
    for (const segment of segmentsOf(bare)) {
      if (known.has(segment)) parts.add(segment);
    }
  }
  return parts;
}

/** A scheme and a host may stand in front: the path may begin where they end. */
function headsOf(text: string): readonly string[] {
  const [, ...pieces] = /^[/\\]*([^/\\]*)[/\\]*([^/\\]*)[/\\]*([^/\\]*)/.exec(text) ?? [];
  return pieces.flatMap((piece) => {
    const host = piece.slice(piece.lastIndexOf("@") + 1);
    return [...new Set([piece, host])].flatMap((head) => {
      const at = head.search(/[^a-z0-9.+_-]/);
      return at < 0 ? [] : [head.slice(at), head.slice(at + 1)];
    });
  });
}
