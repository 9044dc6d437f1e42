import { Lexer } from "yaml";

/** No rules need more brackets, levels or blanks than this. */
const DEEPEST = 32;
const MOST_BLANKS = 128;
/** What some nine thousand rules need. Reading takes a second then. */
const MOST_WORDS = 400_000;

/** What the lexer says besides what is written: a plain text follows, a document, a collection's end. */
const TEXT_FOLLOWS = "\x1f";
const UNWRITTEN = new Set(["\x02", "\x18"]);
/** With which a level may begin. */
const MARKS = new Set(["-", "?", ":"]);

/** A text that is too deep or too long to be parsed. */
export class TooMuch extends Error {
  /** Where, in characters. */
  readonly at: number;

  constructor(at: number, found: string) {
    super(found);
    this.at = at;
  }
}

/**
 * The words of a text, for the parser. The parser recurses, and catching that is not enough: a regular
 * expression that V8 compiles at the end of the stack ends the process. So what nests deeper than
 * rules do is found first, and the lexer is only asked for as much as is in order.
 *
 * @throws TooMuch
 */
export function* wordsOf(text: string): Generator<string> {
  let at = 0;
  let words = 0;
  // of the line, and in each bracket that is open of the item: what a level may begin with
  const marks = [0];
  let sum = 0;
  let isLineStart = true;
  let isText = false;
  for (const word of new Lexer().lex(text)) {
    words += 1;
    if (words > MOST_WORDS) throw new TooMuch(at, `more than ${MOST_WORDS} words and signs`);
    yield word;
    if (UNWRITTEN.has(word)) continue;
    if (word === TEXT_FOLLOWS) {
      isText = true;
      continue;
    }
    const last = marks.length - 1;
    const inItem = marks[last] ?? 0;
    if (isText) isText = false;
    else if (word === "[" || word === "{") marks.push(0);
    else if ((word === "]" || word === "}") && last > 0) sum -= marks.pop() ?? 0;
    else if (word === "," && last > 0) {
      sum -= inItem;
      marks[last] = 0;
    } else if (MARKS.has(word) || word[0] === "!" || word[0] === "&") {
      sum += 1;
      marks[last] = inItem + 1;
    }
    if (last >= DEEPEST && marks.length > DEEPEST + 1) {
      throw new TooMuch(at, `more than ${DEEPEST} brackets in one another`);
    }
    if (sum > 2 * DEEPEST) throw new TooMuch(at, `more than ${2 * DEEPEST} levels in one line`);
    if (isLineStart && word.length > MOST_BLANKS && word.trim() === "") {
      throw new TooMuch(at, `an indentation of more than ${MOST_BLANKS}`);
    }
    at += word.length;
    isLineStart = word.endsWith("\n") || word.endsWith("\r");
    if (isLineStart && marks.length === 1) {
      sum = 0;
      marks[0] = 0;
    }
  }
}
