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

/** What a target holds where it can be read in too many ways: the segments of all of them. */
export type Parts = ReadonlySet<string>;

/** What keeps a path from being read as it stands. */
const TRICK = /[^!-~]|[%\\;#]|\/\/|\.(?:\/|$)/;
/** The same once it is decoded. */
const HIDDEN = /[\\;#?\p{Cc}]|\/\/|[. ](?:\/|$)/u;
/** Of a query: it may climb out of itself where a server does not cut it off. */
const CLIMBS = /(?:[/\\]|%2f|%5c)(?:\.|%2e)/i;
/** In absolute form, in front of the path: a host that each server finds the end of. */
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]*)?(?=\/)/i;
const HOST = /^[a-z0-9._-]*(?::[0-9]*)?$/i;
const CONTROL = /\p{Cc}/u;
const CONTROLS = /\p{Cc}+/gu;
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
  const decoded = fold(decode(path));
  return HIDDEN.test(decoded) ? undefined : decoded;
}

/**
 * @param target as the client sent it; origin form, absolute form, "*" or an authority
 * @returns the readings, one or two; or the parts where there would be more
 */
export function readTarget(target: string): readonly Reading[] | Parts {
  // URL parsers do not see these
  const whole = withoutOrigin(target.replace(/[\t\n\r]/g, ""));
  const end = whole.indexOf("?");
  const pieces = piecesOf(end < 0 ? whole : whole.slice(0, end));
  const queried = end < 0 ? [] : piecesOf(whole.slice(end));
  if (pieces[0] !== "" || pieces.some(isTrick) || queried.some(climbs)) {
    return partsOf([...pieces, ...queried]);
  }
  const segments = segmentsOf(pieces);
  if (pieces[1] !== "" || pieces.length < 3) return [segments];
  // "//a/b" is a path to some servers, and to a URL parser host and path
  const host = pieces.findIndex((piece) => piece !== "");
  if (!HOST.test(pieces[host] ?? "")) return partsOf(pieces);
  return [segments, segmentsOf(pieces.slice(host + 1))];
}

/** The one reading of a rule's own path, which has no trick in it. */
export function readRulePath(path: string): readonly string[] {
  return [...segmentsOf(piecesOf(path))];
}

/** Decoded and folded, what stands between slashes of either kind. */
function piecesOf(text: string): readonly string[] {
  return fold(decode(text)).replaceAll("\\", "/").split("/");
}

/** The letters that differ by case alone, and those that are written in two ways, are the same. */
function fold(text: string): string {
  if (!/[^\0-\x7f]/.test(text)) return text.toLowerCase();
  const composed = text.replace(TOO_MANY_MARKS, "").normalize("NFC");
  return composed.toUpperCase().toLowerCase().normalize("NFC");
}

/** Without dots and blanks at its end, which Windows drops. */
function withoutTail(segment: string): string {
  let end = segment.length;
  while (end > 0 && (segment[end - 1] === "." || segment[end - 1] === " ")) end -= 1;
  return segment.slice(0, end);
}

function withoutOrigin(target: string): string {
  const origin = ORIGIN.exec(target)?.[0];
  return origin === undefined ? target : target.slice(origin.length);
}

/** Without those that are empty or "." only, without parameters, and up to what ends a path. */
function* segmentsOf(pieces: readonly string[]): Generator<string> {
  for (const piece of pieces) {
    if (piece === "") continue;
    const end = piece.search(/[?#]/);
    const path = end < 0 ? piece : piece.slice(0, end);
    const segment = withoutTail(before(path, ";"));
    if (segment !== "") yield segment;
    if (end >= 0) return;
  }
}

function before(text: string, mark: string): string {
  const end = text.indexOf(mark);
  return end < 0 ? text : text.slice(0, end);
}

function isTrick(piece: string): boolean {
  return climbs(piece) || CONTROL.test(piece);
}

/** Whether some server takes it for "..". */
function climbs(piece: string): boolean {
  const [first = ""] = piece;
  if (piece.length < 2) return false;
  if (first !== "." && first !== " " && !CONTROL.test(first)) return false;
  const [path = ""] = piece.split(/[;?#]/, 1);
  return /^[. \p{Cc}]*$/u.test(path) && path.replace(/[^.]/g, "").length > 1;
}

/** Each piece whole, and up to each mark that ends a path or begins parameters. */
function partsOf(pieces: readonly string[]): Parts {
  const parts = new Set<string>();
  const add = (text: string) => parts.add(withoutTail(text.replace(CONTROLS, "")));
  for (const piece of new Set(pieces)) {
    add(piece);
    // a NUL ends a path for what is written in C
    for (const mark of ";?#\0") if (piece.includes(mark)) add(before(piece, mark));
  }
  // a scheme and a host stand in front: the path may begin where they end
  for (const piece of pieces.filter((each) => each !== "").slice(0, 3)) {
    const host = piece.slice(piece.lastIndexOf("@") + 1);
    for (const head of new Set([piece, host])) {
      const at = head.search(/[^a-z0-9.+_-]/);
      if (at >= 0) [head.slice(at), head.slice(at + 1)].forEach(add);
    }
  }
  return parts;
}
