import { Lexer } from "yaml";

/** No rules need more brackets, levels or blanks than this. */
const DEEPEST = 32;
const MOST_BLANKS = 128;

/** What the lexer says besides what is written: a plain text follows, a document, a collection's end. */
const TEXT_FOLLOWS = "\x1f";
const UNWRITTEN = new Set(["\x02", "\x18"]);

/**
 * Where a text nests deeper than rules do, and what it does there. The parser recurses, and catching
 * that is not enough: a regular expression that V8 compiles at the end of the stack ends the process.
 * The lexer is only asked for as much as is in order.
 */
export function tooDeep(text: string): { readonly at: number; readonly found: string } | undefined {
  let at = 0;
  // of the line, and in each bracket that is open of the item: what a level may begin with
  const marks = [0];
  let isLineStart = true;
  let isText = false;
  for (const token of new Lexer().lex(text)) {
    if (UNWRITTEN.has(token)) continue;
    if (token === TEXT_FOLLOWS) {
      isText = true;
      continue;
    }
    const last = marks.length - 1;
    if (isText) isText = false;
    else if (token === "[" || token === "{") marks.push(0);
    else if ((token === "]" || token === "}") && last > 0) marks.pop();
    else if (token === "," && last > 0) marks[last] = 0;
    else if (/^[-?:]$|^[!&]/.test(token)) marks[last] = (marks[last] ?? 0) + 1;
    if (marks.length > DEEPEST + 1)
      return { at, found: `more than ${DEEPEST} brackets in one another` };
    if (marks.reduce((sum, count) => sum + count) > 2 * DEEPEST) {
      return { at, found: `more than ${2 * DEEPEST} levels in one line` };
    }
    if (isLineStart && token.length > MOST_BLANKS && token.trim() === "") {
      return { at, found: `an indentation of more than ${MOST_BLANKS}` };
    }
    at += token.length;
    isLineStart = token.endsWith("\n") || token.endsWith("\r");
    if (isLineStart && marks.length === 1) marks[0] = 0;
  }
  return undefined;
}
