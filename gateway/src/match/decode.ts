/**
 * Percent-decoding in one linear pass that never throws, whatever the text contains.
 *
 * A byte is an escape, or a character of the text: Node passes bytes above 127 as Latin-1
 * characters. Bytes that form a UTF-8 character become that character; overlong forms are included,
 * because lenient decoders accept them. Any other byte becomes a Latin-1 character, as with
 * `unescape`. Text that is not a valid escape stays as it is.
 */
const PERCENT = 0x25;

/** The value of each hexadecimal digit, by its character code; -1 for all others. */
const HEX = Int8Array.from({ length: 128 }, (_, code) => {
  const value = "0123456789abcdef".indexOf(String.fromCharCode(code).toLowerCase());
  return value;
});

/** How many bytes follow a first byte, by its upper four bits less 12. */
const FOLLOWING = [1, 1, 2, 3];

const ENCODED = /[%\x80-\xff]/;

/** @returns the text with each escape decoded once */
export function decode(text: string): string {
  if (!ENCODED.test(text)) return text;
  let decoded = "";
  // where the pending run of unchanged characters begins
  let start = 0;
  for (let at = 0; at < text.length; ) {
    const code = text.charCodeAt(at);
    const first = code < 0x80 && code !== PERCENT ? -1 : byteAt(text, at);
    if (first < 0) {
      at += 1;
      continue;
    }
    decoded += text.slice(start, at);
    let point = first;
    at += code === PERCENT ? 3 : 1;
    if (first >= 0xc0 && first < 0xf8) {
      const character = multibyte(text, at, first);
      if (character !== undefined) [point, at] = character;
    }
    decoded += String.fromCodePoint(point);
    start = at;
  }
  return decoded + text.slice(start);
}

/** Returns the code point of a first byte and its following bytes, and where they end. */
function multibyte(text: string, start: number, first: number): [number, number] | undefined {
  const count = FOLLOWING[(first >> 4) - 12] ?? 0;
  let point = first & (0x3f >> count);
  let at = start;
  for (let i = 0; i < count; i++) {
    const next = byteAt(text, at);
    if (next < 0x80 || next > 0xbf) return undefined;
    point = (point << 6) | (next & 0x3f);
    at += widthAt(text, at);
  }
  return point <= 0x10ffff ? [point, at] : undefined;
}

/** Returns the byte of an escape, or of a Latin-1 character above ASCII; otherwise -1. */
function byteAt(text: string, at: number): number {
  const code = text.charCodeAt(at);
  if (code !== PERCENT) return code >= 0x80 && code <= 0xff ? code : -1;
  const high = HEX[text.charCodeAt(at + 1)] ?? -1;
  if (high < 0) return -1;
  const low = HEX[text.charCodeAt(at + 2)] ?? -1;
  return low < 0 ? -1 : high * 16 + low;
}

function widthAt(text: string, at: number): number {
  return text.charCodeAt(at) === PERCENT ? 3 : 1;
}
