import { readFileSync } from "node:fs";
import * as assert from "uvu/assert";
import * as z from "zod";
import { suite } from "../../../test/support/suite.ts";
import { rulesJsonSchema } from "../../src/rules/schema.ts";

const test = suite("JSON Schema of rules");

const text = readFileSync("gateway/rules.schema.json", "utf8");
const schema = JSON.parse(text);

test("the published schema equals the generated one", () => {
  assert.equal(schema, JSON.parse(JSON.stringify(rulesJsonSchema())));
});

test("an editor accepts what the reader accepts, and marks what it rejects", () => {
  const editor = z.fromJSONSchema(schema);
  const takes = (data: unknown) => editor.safeParse(data).success;
  const rule = { actor: "device", unit: "second", rpu: 100 };
  const full = {
    ...{ name: "n", units: 5, algo: "TB", scope: "global", mode: "shadow", cost: 2, burst: 3 },
    ...{ methods: ["GET"], overrides: { gold: { rpu: 1 } }, exempt: ["a"], nodelay: true },
  };
  const good: unknown[] = [
    { url: "/", rules: [rule] },
    { Url: "/sample", rules: [{ ...rule, ...full }] },
    [{ url: "/a b".replace(" ", "%20"), rules: [{ ...rule, unit: "second", actor: "tenant" }] }],
    [],
    { url: ["/a", "/b/:id"], exact: true, except: "/c", host: ["*.x.org"], rules: [rule] },
    { url: "/", rules: [{ ...rule, actor: { header: "x-tenant" }, cost: { POST: 5 }, rpu: 0 }] },
    { url: "/", rules: [{ ...rule, count: "failures", block: "15m", unit: "month" }] },
    {
      url: "/",
      rules: [{ actor: "device", connections: 10, scope: "global", maxAge: "1m" }, rule],
    },
    {
      url: "/",
      rules: [
        { bytesPerSecond: "1.5M", afterBytes: 0 },
        { ...rule, rpu: 5 },
      ],
    },
  ];
  for (const data of good) assert.ok(takes(data), JSON.stringify(data));
  const bad: unknown[] = [
    { url: "/" },
    { url: "sample", rules: [rule] },
    { url: "/", rules: [] },
    { url: "/", rules: [{ ...rule, rpu: -1 }] },
    { url: [], rules: [rule] },
    { url: "/", host: "https://x", rules: [rule] },
    { url: "/", rules: [{ ...rule, block: "soon" }] },
    { url: "/", rules: [{ ...rule, unit: "secnd" }] },
    { url: "/", rules: [{ ...rule, foo: 1 }] },
    { url: "/", rules: [{ ...rule, connections: 1 }] },
    { url: "/", rules: [{ actor: "device", connections: 0.5 }] },
    { url: "/", rules: [{ bytesPerSecond: "fast" }] },
    { url: "/", rules: [{ bytesPerSecond: 0 }] },
    "x",
  ];
  for (const data of bad) assert.not.ok(takes(data), JSON.stringify(data));
});

test.run();
