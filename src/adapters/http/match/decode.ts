/**
 * Percent-decoding without exceptions: one pass, linear, whatever the text holds.
 *
 * A byte is written as an escape, or stands in the text as it is: Node hands over bytes above 127 as
 * characters of Latin-1. Bytes that form a character of UTF-8 become that character, overlong forms
 * included, because lenient decoders accept them. A byte that forms none becomes a character of
 * Latin-1, as it does for `unescape`. What is no escape stays as it is.
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
/** Arguments of one call: more might not fit on the stack. */
const CHUNK = 8192;

/** @returns the text with each escape decoded once */
export function decode(text: string): string {
  if (!ENCODED.test(text)) return text;
  // no character of the result is longer than what it is written as
  const units = new Uint16Array(text.length);
  let length = 0;
  for (let at = 0; at < text.length; ) {
    const first = byteAt(text, at);
    if (first < 0) {
      units[length++] = text.charCodeAt(at);
      at += 1;
      continue;
    }
    let end = at + widthAt(text, at);
    let point = first;
    if (first >= 0xc0 && first < 0xf8) {
      const character = multibyte(text, end, first);
      if (character !== undefined) [point, end] = character;
    }
    if (point > 0xffff) {
      units[length++] = 0xd7c0 + (point >> 10);
      units[length++] = 0xdc00 + (point & 0x3ff);
    } else units[length++] = point;
    at = end;
  }
  let decoded = "";
  for (let start = 0; start < length; start += CHUNK) {
    const chunk = units.subarray(start, Math.min(length, start + CHUNK));
    decoded += Reflect.apply(String.fromCharCode, undefined, chunk);
  }
  return decoded;
}

/** The code point that a first byte and those that follow it form, and where they end. */
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

/** The byte of an escape, or of a character of Latin-1 above ASCII; -1 where there is neither. */
function byteAt(text: string, at: number): number {
  const code = text.charCodeAt(at);
  if (code !== PERCENT) return code >= 0x80 && code <= 0xff ? code : -1;
  const high = HEX[text.charCodeAt(at + 1)] ?? -1;
  const low = HEX[text.charCodeAt(at + 2)] ?? -1;
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

function widthAt(text: string, at: number): number {
  return text.charCodeAt(at) === PERCENT ? 3 : 1;
}
