/**
 * Reads the fields that proxies add to a request: `X-Forwarded-For`, and `Forwarded` (RFC 7239).
 */

export type ForwardedField = "x-forwarded-for" | "forwarded";

/**
 * Returns the addresses that the last `count` proxies appended, the outermost proxy's first; ""
 * where a proxy gives none.
 *
 * These elements were written by trusted proxies and are well-formed. Clients control what is to
 * the left of them, so the list is read from the right. A parser of the whole field would let a
 * client make the whole field invalid.
 */
export function forwardedFor(
  field: ForwardedField,
  list: string,
  count: number,
): readonly string[] {
  const elements = lastElements(list, count, field === "forwarded");
  return field === "forwarded" ? elements.map(forOf) : elements;
}

function lastElements(list: string, count: number, hasQuotes: boolean): readonly string[] {
  const elements: string[] = [];
  let quoted = false;
  let end = list.length;
  for (let i = list.length - 1; i >= -1 && elements.length < count; i--) {
    const char = i < 0 ? "," : list[i];
    if (hasQuotes && char === '"' && !(quoted && isEscaped(list, i))) quoted = !quoted;
    if (char !== "," || (quoted && i >= 0)) continue;
    elements.push(list.slice(i + 1, end).trim());
    end = i;
  }
  return elements.reverse();
}

function isEscaped(text: string, at: number): boolean {
  let backslashes = 0;
  while (text[at - 1 - backslashes] === "\\") backslashes += 1;
  return backslashes % 2 === 1;
}

/** A parameter, `name=token` or `name="quoted"`, and its end. Some proxies do not quote IPv6. */
const PARAMETER = /(?:[ \t]*([^\s;="]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*)))?[ \t]*(;|$)/y;

/** Returns "" if `for` is absent, malformed or repeated: a client may have injected it. */
function forOf(element: string): string {
  let found: string | undefined;
  PARAMETER.lastIndex = 0;
  for (;;) {
    const parameter = PARAMETER.exec(element);
    if (parameter === null) return "";
    const [, name, quoted, token = "", end] = parameter;
    if (name?.toLowerCase() === "for") {
      if (found !== undefined) return "";
      found = quoted?.replace(/\\(.)/g, "$1") ?? token;
    }
    if (end === "") return found ?? "";
  }
}
