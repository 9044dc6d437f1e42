import { RateLimiter } from "smooth-limiter";
import * as assert from "uvu/assert";
import { type Create, type History, readHistories, replay } from "../../support/guava.ts";
import { suite } from "../../support/suite.ts";

const folder = new URL("../../fixtures/guava/", import.meta.url);
const named = readHistories(new URL("named.txt", folder));
const random = readHistories(new URL("dev.txt.gz", folder));

/** Overflow of 64-bit integers, which doubles do not have: recorded for information. */
const NOT_COMPARED = "extreme";

interface Fault {
  readonly history: string;
  /** The first answer that differs. */
  readonly operation: string;
  readonly original: string;
  readonly ours: string | RegExp;
}

/** Where the original is faulty or undefined, and what this library does instead. */
const faults: { readonly why: string; readonly histories: readonly Fault[] }[] = [
  {
    why: "no warm-up: after an idle moment the original grants everything, ours is a bursty limiter",
    histories: [
      {
        history: "zero warmup stops limiting after the first idle microsecond (Guava #2730)",
        operation: "acquire 1000",
        original: "0.000000",
        ours: "999.999999",
      },
      {
        history: "trace 24",
        operation: "tryAcquire 1 3312",
        original: "true 0",
        ours: "false 0",
      },
      {
        history: "trace 138",
        operation: "reserve 1",
        original: "0",
        ours: "6232243",
      },
      {
        history: "trace 388",
        operation: "reserve 1",
        original: "333333",
        ours: "330412",
      },
    ],
  },
  {
    why: "cold factor below 1, faster when cold: refused, with a warm-up or without",
    histories: ["22", "99", "209", "280", "287", "315"].map((trace) => ({
      history: `trace ${trace}`,
      operation: firstOperation(`trace ${trace}`),
      original: "ok",
      ours: /^error RangeError: coldFactor must be a finite number, 1 or more, got 0\.\d$/,
    })),
  },
  {
    why: "burst 0, infinite rate: NaN in the original, which limits no more; ours stores nothing",
    histories: [
      {
        history: "trace 50",
        operation: "acquire 1",
        original: "0.000000",
        ours: "1.184111",
      },
      {
        history: "trace 284",
        operation: "reserve 1",
        original: "0",
        ours: "131655",
      },
    ],
  },
  {
    why: "a clock set back: the original waits for it to catch up, ours goes on from where it was",
    histories: [
      {
        history: "clock stepping back",
        operation: "acquire 1",
        original: "0.500000",
        ours: "0.000000",
      },
    ],
  },
];

function firstOperation(name: string): string {
  return random.find((history) => history.name === name)?.steps[0]?.operation ?? "";
}

const create: Create = (permitsPerSecond, options) => RateLimiter.create(permitsPerSecond, options);

const expected = new Map(
  faults.flatMap(({ why, histories }) =>
    histories.map((fault) => [fault.history, { why, ...fault }] as const),
  ),
);
const ends = new Map<History["kind"], { end: number; closeCall: number; fault: number }>();
let steps = 0;

const test = suite("recorded runs of Guava");

for (const histories of [named, random]) {
  const kinds = new Set(histories.map(({ kind }) => kind));
  for (const kind of kinds) {
    if (kind === NOT_COMPARED) continue;
    test(`${kind}: all agree except the listed ones`, async () => {
      const count = { end: 0, closeCall: 0, fault: 0 };
      for (const history of histories.filter((one) => one.kind === kind)) {
        const outcome = await replay(history, create);
        const { left, operation, original, ours = "" } = outcome;
        const facts = `"${history.name}": ${JSON.stringify(outcome)}`;
        const fault = expected.get(history.name);
        steps += outcome.agreed;
        if (fault !== undefined) {
          assert.is(left, "differs", `listed (${fault.why}), but it agrees: ${facts}`);
          assert.is(operation, fault.operation, facts);
          assert.is(original, fault.original, facts);
          if (typeof fault.ours === "string") assert.is(ours, fault.ours, facts);
          else assert.match(ours, fault.ours, facts);
          count.fault += 1;
        } else {
          assert.is.not(left, "differs", facts);
          count[left === "end" ? "end" : "closeCall"] += 1;
        }
      }
      ends.set(kind, count);
    });
  }
}

test("every history is replayed far enough", () => {
  assert.is(named.length, 48);
  assert.is(random.length, 500);
  assert.equal(Object.fromEntries(ends), {
    named: { end: 46, closeCall: 0, fault: 2 },
    bursty: { end: 72, closeCall: 31, fault: 0 },
    burstySeconds: { end: 59, closeCall: 25, fault: 0 },
    warmup: { end: 78, closeCall: 64, fault: 0 },
    setRate: { end: 55, closeCall: 30, fault: 0 },
    epoch: { end: 15, closeCall: 20, fault: 0 },
    special: { end: 24, closeCall: 7, fault: 11 },
  });
  const extreme = random.filter(({ kind }) => kind === NOT_COMPARED);
  assert.is(extreme.length, 9);
  assert.ok(steps > 20_000, `only ${steps} steps were compared`);
});

test.run();
