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
 * @returns each way to read its path, at least one
 */
export function readings(target: string): readonly Reading[] {
  const found = new Map<string, Reading>();
  const targets = new Set([target, asUrlParsersSee(target)]);
  for (const each of [...targets].map(withoutQuery).flatMap(withoutAuthority)) {
    const cut = each.split("#", 1)[0] ?? "";
    const forward = cut.replaceAll("\\", "/");
    const decoded = decode(forward).replaceAll("\\", "/");
    for (const segments of [
      each.split("/").map(decode),
      resolve(forward.split("/")).map(decode),
      resolve(forward.split("/").map(withoutParameters)).map(decode),
      resolve(decoded.split("/")),
      resolve((decoded.split("\0", 1)[0] ?? "").split("/").map(withoutParameters)),
    ]) {
      const reading = segments.map(foldSegment).filter((segment) => segment !== "");
      found.set(reading.join("/"), reading);
    }
  }
  return [...found.values()];
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

/** "." and ".." in all spellings, as a URL parser does it; never above the root. */
function resolve(segments: readonly string[]): string[] {
  const resolved: string[] = [];
  for (const segment of segments) {
    const plain = segment.replace(/%2e/gi, ".");
    if (plain === "..") resolved.pop();
    else if (plain !== "." && plain !== "") resolved.push(segment);
  }
  return resolved;
}

/** "a;b=c" is "a" to some. */
function withoutParameters(segment: string): string {
  return segment.split(";", 1)[0] ?? "";
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
