/**
 * What a request target may mean. Servers disagree: one routes the path as it came, another resolves
 * ".." first, a third takes "%2f" for a slash. A rule that saw only one of these could be walked
 * around through another. So a target that has several readings is held to the rules of all of
 * them, and one that is plain, as nearly all are, has one.
 *
 * In each reading segments are decoded once, empty ones do not count, and case does not matter.
 */

/** Segments of a path, folded. */
export type Reading = readonly string[];

/** What servers read differently; and what more of it escapes may hide. */
const TRICK = /[\\;# ]|\/\/|\/\.|^[^/]|\p{Cc}|%2f/iu;
const HIDDEN = /[\\;#]|\/\.|\p{Cc}/u;
/** Written in one way only, beside case. */
const ASCII = /^[^%\P{ASCII}]*$/u;
const ABSOLUTE = /^[a-z][a-z0-9+.-]*:[/\\]{2}[^/\\?#]*/i;
/** To who looks for the next slash only, a host may hold what begins a query to others. */
const AUTHORITY = /^[a-z][a-z0-9+.-]*:\/\/[^/]*/i;
const SCHEME = /^[a-z][a-z0-9+.-]*:/i;
const ESCAPES = /(?:%[0-9a-f]{2})+/gi;

/** The path of a target that can be read in one way only; undefined for all others. */
export function plainPath(target: string): string | undefined {
  const path = withoutQuery(target);
  if (TRICK.test(path)) return undefined;
  if (ASCII.test(path)) return path.toLowerCase();
  const decoded = decode(path);
  return HIDDEN.test(decoded) ? undefined : foldSegment(decoded);
}

/**
 * @param target as the client sent it; origin form, absolute form, "*" or an authority
 * @param depth how many segments anybody looks at
 * @returns each way to read its path, at least one; some may be the same
 */
export function readings(target: string, depth: number): readonly Reading[] {
  const url = asUrlParsersSee(target);
  const targets = new Set([target, url, target.replace(AUTHORITY, ""), url.replace(SCHEME, "")]);
  return [...targets]
    .map(withoutQuery)
    .flatMap(withoutAuthority)
    .flatMap((path) => inEachWay(path, depth));
}

function inEachWay(path: string, depth: number): readonly Reading[] {
  const uncut = path.replace(/\/{2,}/g, "/");
  const [cut = ""] = uncut.split("#", 1);
  const forward = cut.replace(/[/\\]+/g, "/").replace(/%2e/gi, ".");
  const decoded = decode(forward).replace(/[/\\]+/g, "/");
  const beforeNul = decoded.split("\0", 1)[0] ?? "";
  return [
    first(uncut, depth).map(decode),
    first(decode(uncut), depth),
    resolve(decode(cut), depth),
    first(decode(resolveAsUrl(path.split("#", 1)[0] ?? "", depth).join("/")), depth),
    resolve(forward, depth).map(decode),
    resolve(withoutParameters(forward), depth).map(decode),
    resolve(decoded, depth),
    resolve(withoutParameters(beforeNul), depth),
  ].map((segments) => segments.map(foldSegment));
}

/** The one reading of a rule's own path, which has no trick in it. */
export function readRulePath(path: string): Reading {
  return path
    .split("/")
    .map(decode)
    .map(foldSegment)
    .filter((segment) => segment !== "");
}

/** The letters that differ by case alone, and those that are written in two ways, are the same. */
export function foldSegment(segment: string): string {
  return segment.normalize("NFC").toLowerCase().normalize("NFC");
}

/** Without what a URL parser does not see: blanks around it, and line ends and tabs anywhere. */
function asUrlParsersSee(target: string): string {
  let start = 0;
  let end = target.length;
  while (start < end && target.charCodeAt(start) <= 0x20) start += 1;
  while (end > start && target.charCodeAt(end - 1) <= 0x20) end -= 1;
  return target.slice(start, end).replace(/[\t\n\r]/g, "");
}

function withoutQuery(target: string): string {
  const end = target.indexOf("?");
  return end < 0 ? target : target.slice(0, end);
}

/**
 * "//a/b" is a path to some, and to a URL parser host and path: both count. What begins with
 * neither a slash nor a scheme, such as "*", is below "/" all the same.
 */
function withoutAuthority(path: string): readonly string[] {
  const absolute = ABSOLUTE.exec(path)?.[0];
  if (absolute !== undefined) return [path.slice(absolute.length), path];
  const relative = /^[/\\]{2,}[^/\\#]*/.exec(path)?.[0];
  return relative === undefined ? [path] : [path, path.slice(relative.length)];
}

/** The first segments that are not empty; what is behind them is not looked at. */
function first(path: string, depth: number): string[] {
  const segments: string[] = [];
  for (let start = 0; start < path.length && segments.length < depth; ) {
    const slash = path.indexOf("/", start);
    const end = slash < 0 ? path.length : slash;
    if (end > start) segments.push(path.slice(start, end));
    start = end + 1;
  }
  return segments;
}

const DOTS = /(?:^|\/)\.{1,2}(?:\/|$)/;

/** "." and ".." as a URL parser takes them; never above the root. */
function resolve(path: string, depth: number): string[] {
  if (!DOTS.test(path)) return first(path, depth);
  const resolved: string[] = [];
  for (const segment of path.split("/")) {
    if (segment === "..") resolved.pop();
    else if (segment !== "." && segment !== "") resolved.push(segment);
  }
  return resolved.slice(0, depth);
}

/** As `resolve`, but ".." goes back over an empty segment too, as it does in a URL parser. */
function resolveAsUrl(path: string, depth: number): string[] {
  const forward = path.replace(/\\/g, "/").replace(/%2e/gi, ".");
  const resolved: string[] = [];
  for (const segment of forward.replace(/^\//, "").split("/")) {
    if (segment === "..") resolved.pop();
    else if (segment !== ".") resolved.push(segment);
  }
  return resolved.filter((segment) => segment !== "").slice(0, depth);
}

/** "a;b=c" is "a" to some. */
function withoutParameters(path: string): string {
  return path.replace(/;[^/]*/g, "");
}

/** Once. What is no UTF-8, or no escape at all, stays as it is. */
function decode(text: string): string {
  return text.includes("%") ? text.replace(ESCAPES, decodeRun) : text;
}

function decodeRun(run: string): string {
  try {
    return decodeURIComponent(run);
  } catch {
    // one bad byte does not hide the letters beside it
    return run.replace(/%[0-7][0-9a-f]/gi, decodeURIComponent);
  }
}
