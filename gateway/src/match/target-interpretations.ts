/**
 * The possible meanings of a request target. Servers disagree: one routes the path as it came,
 * another resolves ".." first, a third decodes "%2f" before it looks for slashes. A rule that saw
 * only one of these meanings could be bypassed through another. So a target is subject to the rules
 * of every way to read it; if these are the rules of different paths, it is disputed: see `PathTree`.
 *
 * The ways are not listed, because their number multiplies: where the path begins and ends, what
 * separates segments, when dots are resolved, when escapes are decoded. Two facts replace the list:
 *
 * - Without ".." every server takes the pieces between plain slashes in the order in which they
 *   came. It disagrees with others only on how many segments a piece is: see `Piece`.
 * - With "..", or where even the beginning of the path is ambiguous, every path that a server can
 *   resolve consists of segments of the target. So a rule applies if all its segments occur in it.
 *
 * All of this is linear in the length of the target. The second fact may find more rules than any
 * server would. Clients resolve ".." themselves, so this affects crafted targets only.
 *
 * The second fact alone would be safe too, but it would refuse requests that clients really send.
 * "/projects/team%2fapp/issues" would be subject to a rule for "/issues" as well as to that for
 * "/projects/:id", and be disputed; so would "/projects//7/issues" and "/projects/7;v=1/issues".
 * The order of the pieces makes each of them clear.
 */
import { decode } from "./decode.ts";
import { type Piece, piecesOf } from "./pieces.ts";
import { fold, MARKED, segmentsOf } from "./segments.ts";

/** For a target with too many interpretations: the known segments that occur in any of them. */
export type Parts = ReadonlySet<string>;

/** What makes a path ambiguous. */
const TRICK = /[^!-~]|[%\\;#]|\/\/|\.(?:\/|$)/;
/** The same after decoding. */
const HIDDEN = /[\\;#?]|[^ -~\xa0-\uffff]|\/\/|[. ](?:\/|$)/;
/** In a query: ".." as a segment, which changes the path on servers that do not cut the query off. */
const CLIMBS = /(?:[/\\]|%2f|%5c)(?:\.|%2e)/i;
/** In absolute form: the origin before the path. All servers agree on where it ends. */
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]*)?(?=\/)/i;
const HOST = /^[a-z0-9._-]*(?::[0-9]*)?$/i;
const ESCAPED_HOST = /^[/\\]+[^/\\?#]*%/;
const CONTROL = /[^ -~\xa0-\uffff]/;
const CONTROLS = /[^ -~\xa0-\uffff]+/g;
/** What some server takes for "..". */
const DOTS = /(?:^|[/\\])[ \p{Cc}]*\.[ \p{Cc}]*\.[. \p{Cc}]*(?:[/\\;?#]|$)/u;
/** As `MARKED`, for servers written in C, where a NUL ends a path too. */
const MARKED_IN_C = /[;?#\0][^/\\]*/g;
/**
 * Returns the decoded and folded path of a target with only one interpretation; undefined for all others.
 *
 * @param known the segments of all rules: a host that is one of them makes a second interpretation
 */
export function plainPath(target: string, known?: ReadonlySet<string>): string | undefined {
  const whole = withoutOrigin(target);
  if (!whole.startsWith("/") || startsAtHost(target, whole, known)) return undefined;
  const end = whole.indexOf("?");
  if (end >= 0 && CLIMBS.test(whole.slice(end))) return undefined;
  const path = end < 0 ? whole : whole.slice(0, end);
  if (!TRICK.test(path)) return path.toLowerCase();
  // decoding removes none of the other ambiguous characters
  if (HIDDEN.test(path)) return undefined;
  const decoded = fold(decode(path));
  return HIDDEN.test(decoded) ? undefined : decoded;
}

/** Returns a target without its origin and its query, neither decoded nor folded. */
export function pathOf(target: string): string {
  const whole = withoutOrigin(target);
  const end = whole.indexOf("?");
  return end < 0 ? whole : whole.slice(0, end);
}

/**
 * Whether an escape in a target hides a slash: to a router that splits a path before it decodes it,
 * "/a%2fb" is one segment.
 *
 * @param plain the target's only interpretation
 */
export function hidesSlash(target: string, plain: string): boolean {
  return target.includes("%") && slashes(pathOf(target)) !== slashes(plain);
}

function slashes(path: string): number {
  return path.split("/").length;
}

/** A target that is not plain, taken apart. */
export interface Interpretations {
  /** Created one by one, because most are not all needed. */
  readonly pieces: Iterable<Piece>;
  /** Returns its parts, for a target with too many unclear pieces. */
  readonly parts: () => Parts;
}

/**
 * @param target as the client sent it; origin form, absolute form, "*" or an authority
 * @param known the segments of all rules
 * @returns the interpretations; or the parts if not even the order of segments is known
 */
export function interpretTarget(
  target: string,
  known: ReadonlySet<string>,
): Interpretations | Parts {
  // URL parsers ignore these characters; to other servers they are letters
  const visible = target.replace(/^[\0- ]+|[\t\n\r]/g, "");
  const whole = withoutOrigin(visible);
  const end = whole.indexOf("?");
  let raw = end < 0 ? whole : whole.slice(0, end);
  let path = fold(decode(raw));
  let query = end < 0 ? "" : fold(decode(whole.slice(end)));
  if (endsInParameters(path)) [raw, path, query] = [whole, path + query, ""];
  const isHidden = CONTROL.test(path) || visible !== target;
  if (!/^[/\\]/.test(path) || isHidden || DOTS.test(path) || DOTS.test(query)) {
    // to a server that resolves ".." in the whole target, the origin is part of the path
    return partsOf(visible, `${fold(decode(visible))}/${path}/${query}`, known);
  }
  if (startsAtHost(visible, whole, known)) {
    if (/^[/\\]{2}/.test(path)) return partsOf(visible, `${fold(decode(visible))}/${path}`, known);
    const host = hostOf(visible, whole);
    const parts = () => partsOf(whole, `/${host}${path}`, known);
    return { pieces: piecesOf(raw, { host }), parts };
  }
  // "//a/b" is a path to some servers; to a URL parser it is a host and a path
  const host = /^[/\\]{2,}([^/\\]*)/.exec(path)?.[1];
  // an escape ends a host for some
  if (host !== undefined && (!HOST.test(host) || ESCAPED_HOST.test(whole))) {
    return partsOf(whole, path, known);
  }
  const pieces = piecesOf(raw, { mayBeginWithHost: host !== undefined });
  return { pieces, parts: () => partsOf(whole, path, known) };
}

/** Returns the only interpretation of a rule's own path, which contains nothing ambiguous. */
export function readRulePath(path: string): readonly string[] {
  return [...segmentsOf(fold(decode(path)))];
}

/**
 * Whether the host is a segment of a rule: a server that collapses slashes and drops the scheme takes
 * it for the first one.
 */
function startsAtHost(target: string, whole: string, known?: ReadonlySet<string>): boolean {
  return whole !== target && known?.has(hostOf(target, whole)) === true;
}

/**
 * Returns the host without the dots at its end, which Windows drops.
 *
 * @param whole the target without its origin
 */
function hostOf(target: string, whole: string): string {
  const host = target.slice(target.indexOf("/") + 2, target.length - whole.length);
  return fold(host.replace(/(?<!\.)\.+$/, ""));
}

function withoutOrigin(target: string): string {
  if (target.startsWith("/")) return target;
  const origin = ORIGIN.exec(target)?.[0];
  return origin === undefined ? target : target.slice(origin.length);
}

/** Returns whether a server that removes parameters first would remove a "?" behind the path. */
function endsInParameters(path: string): boolean {
  return path.lastIndexOf(";") > Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\"));
}

/**
 * Returns the known segments, each cut where a path may end or parameters may begin.
 *
 * @param target as it came
 * @param text the target, decoded
 */
function partsOf(target: string, text: string, known: ReadonlySet<string>): Parts {
  const parts = new Set<string>();
  const heads = [...headsOf(text), ...headsOf(target).map((head) => fold(decode(head)))];
  const whole = `${text}/${heads.join("/")}`;
  for (const marked of whole.includes("\0") ? [MARKED, MARKED_IN_C] : [MARKED]) {
    const bare = whole.replace(marked, "").replace(CONTROLS, "");
    for (const segment of segmentsOf(bare)) {
      if (known.has(segment)) parts.add(segment);
    }
  }
  return parts;
}

/** Returns the possible beginnings of the path: a scheme and a host may precede it. */
function headsOf(text: string): readonly string[] {
  const [, ...pieces] = /^[/\\]*([^/\\]*)[/\\]*([^/\\]*)[/\\]*([^/\\]*)/.exec(text) ?? [];
  return pieces.flatMap((piece) => {
    const host = piece.slice(piece.lastIndexOf("@") + 1);
    return [...new Set([piece, host])].flatMap((head) => {
      const at = head.search(/[^a-z0-9.+_-]/i);
      return at < 0 ? [] : [head.slice(at), head.slice(at + 1)];
    });
  });
}
