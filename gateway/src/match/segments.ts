/** How a path that was decoded is split into segments, and which letters in them are equal. */

/** What ends a path or begins parameters, with the rest of that segment. */
export const MARKED = /[;?#][^/\\]*/g;
const SLASH = 0x2f;
const BACKSLASH = 0x5c;
const SEMICOLON = 0x3b;
const QUESTION_MARK = 0x3f;
const NUMBER_SIGN = 0x23;
const DOT = 0x2e;
const BLANK = 0x20;
/** More marks on one letter than any language has: normalizing n of them takes n² steps. */
const TOO_MANY_MARKS = /\p{M}{31,}/gu;

/** Makes letters equal that differ only in case or in their Unicode normal form. */
export function fold(text: string): string {
  if (!/[^\0-\x7f]/.test(text)) return text.toLowerCase();
  // Latin-1 text is already normalized
  if (!/[^\0-\xff]/.test(text)) return text.toUpperCase().toLowerCase();
  const composed = text.replace(TOO_MANY_MARKS, "").normalize("NFC");
  return composed.toUpperCase().toLowerCase().normalize("NFC");
}

/**
 * Yields the segments up to the end of the path; each without parameters, and without trailing dots
 * and blanks, which Windows drops. Segments that are then empty are left out.
 */
export function* segmentsOf(path: string): Generator<string> {
  let start = 0;
  let mark = -1;
  for (let at = 0; at <= path.length; at++) {
    const code = at < path.length ? path.charCodeAt(at) : SLASH;
    // a server that removes parameters first removes these characters with them
    const endsPath = mark < 0 && (code === QUESTION_MARK || code === NUMBER_SIGN);
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
