import fc from "fast-check";
import { serializeList, Token } from "structured-headers";
import * as assert from "uvu/assert";
import {
  comesBackMs,
  readQuotas,
  readRetryAfterMs,
  type ServerQuota,
} from "../../../src/adapters/fetch/rate-limit-fields.ts";
import { runs, suite } from "../../support/suite.ts";

const test = suite("rate-limit fields");

const NOW = Date.UTC(2026, 0, 1, 12, 0, 0);
const quotasOf = (fields: Record<string, string>) => readQuotas(new Headers(fields), NOW);
const retryAfterOf = (fields: Record<string, string>) => readRetryAfterMs(new Headers(fields), NOW);

/** A quota, abbreviated: name, remaining, limit, reset, window; and "gradual". */
function short({ name, remaining, limit, resetMs, windowMs, gradual }: ServerQuota): unknown[] {
  return [name, remaining, limit, resetMs, windowMs, ...(gradual ? ["gradual"] : [])];
}

const none = undefined;
const dialects: [title: string, fields: Record<string, string>, ...quotas: unknown[][]][] = [
  [
    "structured fields",
    { ratelimit: '"default";r=50;t=30', "ratelimit-policy": '"default";q=100;w=60' },
    ["default", 50, 100, 30_000, 60_000],
  ],
  [
    "structured fields of two policies, one without a policy field",
    { ratelimit: '"burst";r=5;t=1, "daily";r=0;t=3600', "ratelimit-policy": '"daily";q=9;w=86400' },
    ["burst", 5, none, 1000, none],
    ["daily", 0, 9, 3_600_000, 86_400_000],
  ],
  [
    "a name with separators and quotes, spaces, unknown parameters",
    { ratelimit: '"a;b, \\"c\\" \\\\" ; r=1;pk=:QUJD: ; t=2' },
    ['a;b, "c" \\', 1, none, 2000, none],
  ],
  ["a token for a name", { ratelimit: "default;r=3" }, ["default", 3, none, none, none]],
  [
    "no t: the window at the most",
    { ratelimit: '"d";r=3', "ratelimit-policy": '"d";q=5;w=10' },
    ["d", 3, 5, 10_000, 10_000],
  ],
  [
    "Shopify's used and limit",
    { "x-shopify-shop-api-call-limit": "32/40" },
    [none, 8, 40, 16_000, none, "gradual"],
  ],
  [
    "Shopify's bucket that runs over",
    { "x-shopify-shop-api-call-limit": "42/40" },
    [none, 0, 40, 21_000, none, "gradual"],
  ],
  ["no numbers of Shopify", { "x-shopify-shop-api-call-limit": "32/0" }],
  ["half a number of Shopify", { "x-shopify-shop-api-call-limit": "/40" }],
  [
    "draft 7",
    { ratelimit: "limit=100, remaining=50, reset=5", "ratelimit-policy": "100;w=10" },
    [none, 50, 100, 5000, 10_000],
  ],
  [
    "draft 6",
    { "ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "7", "ratelimit-reset": "12" },
    [none, 7, 100, 12_000, none],
  ],
  [
    "X-, reset in seconds",
    { "x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9.5" },
    [none, 0, 60, 9500, none],
  ],
  [
    "X-, reset in Unix time",
    { "x-ratelimit-remaining": "1", "x-ratelimit-reset": String(NOW / 1000 + 20) },
    [none, 1, none, 20_000, none],
  ],
  [
    "X-, reset in ms of Unix time, and over already",
    { "x-rate-limit-remaining": "1", "x-rate-limit-reset": String(NOW - 20) },
    [none, 1, none, 0, none],
  ],
  [
    "counted by the server's clock, not the local one",
    {
      "x-ratelimit-remaining": "1",
      "x-ratelimit-reset": String(NOW / 1000 + 20),
      date: new Date(NOW + 5000).toUTCString(),
    },
    [none, 1, none, 15_000, none],
  ],
  [
    "both dialects: the standard one is used",
    { ratelimit: '"d";r=50;t=30', "x-ratelimit-remaining": "40" },
    ["d", 50, none, 30_000, none],
  ],
  [
    "a RateLimit field without numbers: the other one is used",
    { ratelimit: "what", "x-ratelimit-remaining": "40" },
    [none, 40, none, none, none],
  ],
  [
    "OpenAI",
    {
      "x-ratelimit-limit-requests": "60",
      "x-ratelimit-limit-tokens": "150000",
      "x-ratelimit-remaining-requests": "59",
      "x-ratelimit-remaining-tokens": "149984",
      "x-ratelimit-reset-requests": "1s",
      "x-ratelimit-reset-tokens": "6m0s",
    },
    ["requests", 59, 60, 1000, none, "gradual"],
    ["tokens", 149_984, 150_000, 360_000, none, "gradual"],
  ],
  [
    "Anthropic",
    {
      "anthropic-ratelimit-tokens-limit": "8000",
      "anthropic-ratelimit-tokens-remaining": "1000",
      "anthropic-ratelimit-tokens-reset": "2026-01-01T12:00:30Z",
    },
    ["tokens", 1000, 8000, 30_000, none, "gradual"],
  ],
  ["garbage", { "x-ratelimit-remaining": "many", "ratelimit-remaining": "-1", ratelimit: '"' }],
  ["nothing", {}],
];

for (const [title, fields, ...quotas] of dialects) {
  test(title, () => assert.equal(quotasOf(fields).map(short), quotas));
}

test("Retry-After in seconds, as a date, in ms, and invalid", () => {
  const rows: [Record<string, string>, number | undefined][] = [
    [{ "retry-after": "120" }, 120_000],
    [{ "retry-after": "0" }, 0],
    [{ "retry-after": " 1.5 " }, 1500],
    [{ "retry-after": "Thu, 01 Jan 2026 12:00:07 GMT" }, 7000],
    [{ "retry-after": "Thu, 01 Jan 2026 11:00:00 GMT" }, 0],
    [{ "retry-after": "Thursday, 01-Jan-26 12:00:07 GMT" }, 7000],
    [{ "retry-after": "Thu Jan  1 12:00:07 2026" }, 7000],
    [{ "retry-after": "Thu Jan  1" }, undefined],
    [
      {
        "retry-after": "Thu, 01 Jan 2026 12:00:07 GMT",
        date: "Thu, 01 Jan 2026 12:00:03 GMT",
      },
      4000,
    ],
    [{ "retry-after-ms": "250", "retry-after": "1" }, 250],
    [{ "retry-after": "120ms" }, 120],
    [{ "retry-after": "1h1m1.5s" }, 3_661_500],
    [{ "retry-after": `${"9".repeat(400)}s` }, undefined],
    [{ "retry-after": "9".repeat(400) }, undefined],
    [{ "retry-after": "-5" }, undefined],
    [{ "retry-after": "soon 1" }, undefined],
    [{ "retry-after": "Thu, never" }, undefined],
    [{ "retry-after": "" }, undefined],
    [{}, undefined],
  ];
  for (const [fields, ms] of rows) assert.is(retryAfterOf(fields), ms, JSON.stringify(fields));
});

test("the retry time: soon for a bucket, at its end for a window", () => {
  const [requests, tokens] = quotasOf({
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "60s",
    "x-ratelimit-remaining-tokens": "0",
    "x-ratelimit-reset-tokens": "60s",
  });
  const [window] = quotasOf({ ratelimit: "limit=60, remaining=0, reset=60" });
  assert.equal(
    [requests, tokens, window].map((each) => each && comesBackMs(each)),
    [1000, 60_000, 60_000],
  );
});

test("property: reads what an independent library writes", () => {
  const name = fc.stringMatching(/^[ -~]{1,12}$/);
  const count = fc.integer({ min: 0, max: 1e6 });
  const member = fc.record({ name, r: count, t: count, q: count, w: count });
  fc.assert(
    fc.property(fc.uniqueArray(member, { selector: (each) => each.name, minLength: 1 }), (all) => {
      const field = (...keys: ("r" | "t" | "q" | "w")[]) =>
        serializeList(
          all.map((each) => [
            each.name,
            new Map<string, number | Token>([
              ...keys.map((key) => [key, each[key]] as const),
              ["other", new Token("x/y")],
            ]),
          ]),
        );
      assert.equal(
        quotasOf({ ratelimit: field("r", "t"), "ratelimit-policy": field("q", "w") }).map(short),
        all.map(({ name, r, t, q, w }) => [name, r, q, t * 1000, w * 1000]),
      );
    }),
    { numRuns: runs(200) },
  );
});

test("property: never throws, and never returns NaN", () => {
  const piece = fc.constantFrom(
    ...'"\\;,= :?.-+1rtqw*()'.split(""),
    ...["99999999999", "1e9", "6m", "ms", "limit", "remaining=", "reset=1", "2026-01-01T", "Thu, "],
  );
  const value = fc.oneof(
    fc.array(piece, { maxLength: 20 }).map((pieces) => pieces.join("")),
    fc.stringMatching(/^[ -~]{0,30}$/),
  );
  const fields = fc.dictionary(
    fc.constantFrom(
      ...["ratelimit", "ratelimit-policy", "ratelimit-limit", "ratelimit-remaining"],
      ...["x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-remaining-tokens"],
      ...["x-ratelimit-reset-tokens", "anthropic-ratelimit-a-remaining", "retry-after", "date"],
    ),
    value,
  );
  const good = (number: number | undefined) =>
    number === undefined || (Number.isFinite(number) && number >= 0);
  fc.assert(
    fc.property(fields, (each) => {
      assert.ok(good(retryAfterOf(each)));
      for (const { remaining, limit, resetMs, windowMs } of quotasOf(each)) {
        assert.ok([remaining, limit, resetMs, windowMs].every(good));
      }
    }),
    { numRuns: runs(1000) },
  );
});

test.run();
