/** What proxies add to a request: `X-Forwarded-For`, and `Forwarded` (RFC 7239). */

export type ForwardedField = "x-forwarded-for" | "forwarded";

/**
 * The addresses that the last proxies added, the farthest of these first; "" where one does not say.
 *
 * These elements were written by trusted proxies and are well-formed. What stands to their left may
 * be anything, so the list is read from the right, and a library that parses the whole field would
 * let a client make it invalid.
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

/** A parameter, `name=token` or `name="quoted"`, and what ends it. Some proxies do not quote IPv6. */
const PARAMETER = /(?:[ \t]*([^\s;="]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*)))?[ \t]*(;|$)/y;

/** "" where it says nothing, is malformed or says it twice: a proxy that copies text may be fooled. */
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
