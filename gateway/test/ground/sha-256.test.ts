import { createHash } from "node:crypto";
import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { sha256 } from "../../src/ground/sha-256.ts";

const test = suite("SHA-256");

function ofNode(text: string): string {
  return createHash("sha256").update(text).digest("base64url");
}

test("the examples of FIPS 180-4", () => {
  assert.is(sha256(""), "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU");
  assert.is(sha256("abc"), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0");
  assert.is(sha256("a".repeat(1_000_000)), "zcduXJkU-5KBocfihNc-Z_GAmkiklyAOBG05zMcRLNA");
});

test("every length around the edges of a block", () => {
  for (let length = 0; length < 200; length++) {
    const text = "x".repeat(length);
    assert.is(sha256(text), ofNode(text));
  }
});

test("any text, lone surrogates included, as Node does", async () => {
  const texts = fc.array(fc.nat(0xffff)).map((codes) => String.fromCharCode(...codes));
  await fc.assert(
    fc.property(texts, (text) => {
      assert.is(sha256(text), ofNode(text));
    }),
  );
});

test.run();
