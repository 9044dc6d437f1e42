import fc from "fast-check";

/** Text of any characters. fast-check's own unit "binary" first lists a million of them. */
export const anyText = fc.string({
  unit: fc
    .oneof(fc.nat(0xd7ff), fc.integer({ min: 0xe000, max: 0x10ffff }))
    .map((code) => String.fromCodePoint(code)),
});
