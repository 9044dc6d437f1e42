import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { runs, suite } from "../../../test/support/suite.ts";
import { decode } from "../../src/match/decode.ts";

const test = suite("percent-decoding");

test("decodes all valid text as decodeURIComponent does", async () => {
  // raw characters of Latin-1 are bytes here
  const text = fc.string({ unit: "grapheme" }).map(encodeURIComponent);
  const mixed = fc.array(fc.oneof(text, fc.constantFrom("%25", "%2F", "a", "/", "€", "%e2%82%ac")));
  await fc.assert(
    fc.property(mixed, (parts) => {
      assert.is(decode(parts.join("")), decodeURIComponent(parts.join("")));
    }),
    { numRuns: runs(500) },
  );
});

test("broken escapes and invalid UTF-8 do not hide the text beside them", () => {
  const rows: [encoded: string, decoded: string][] = [
    ["", ""],
    ["%", "%"],
    ["%4", "%4"],
    ["%zz%61", "%zza"],
    ["%%61", "%a"],
    ["%2561", "%61"],
    ["%ff", "ÿ"],
    ["%ffa%ff%61", "ÿaÿa"],
    ["%c3/%a9", "Ã/©"],
    ["%c3%a9", "é"],
    ["\xc3\xa9", "é"],
    ["%c3\xa9", "é"],
    ["é", "é"],
    ["%e2%82", "â\x82"],
    ["%e2%82%41", "â\x82A"],
    ["%f0%9f%98%80", "😀"],
    ["%f0%9f%98", "ð\x9f\x98"],
    ["%f8%88%80%80%af", "ø\x88\x80\x80¯"],
    ["%f7%bf%bf%bf", "÷¿¿¿"],
    ["%80%bf", "\x80¿"],
  ];
  for (const [encoded, decoded] of rows) assert.is(decode(encoded), decoded, encoded);
});

test("overlong forms are read as lenient decoders read them", () => {
  for (const slash of ["%c0%af", "%e0%80%af", "%f0%80%80%af"]) assert.is(decode(slash), "/");
  assert.is(decode("%c0%ae%c0%ae"), "..");
  assert.is(decode("%c1%a1"), "a");
});

test("property: any text is decoded without an error", async () => {
  const piece = fc.constantFrom(
    ..."%|%c3|%a9|%e2|%f4|%9|\xc3|\xff|€|/|%C0%AF|%ed%a0%80|g".split("|"),
  );
  await fc.assert(
    fc.property(fc.array(piece), (pieces) => {
      const text = pieces.join("");
      assert.ok(decode(text).length <= text.length);
    }),
  );
});

test.run();
