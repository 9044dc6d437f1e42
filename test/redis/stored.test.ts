import { fixedWindow, type Policy, smoothBursty } from "smooth-limiter";
import { readStored, readStoredLeases, readStoredParts } from "smooth-limiter/redis";
import { casStore, StoreLimiter } from "smooth-limiter/store";
import * as assert from "uvu/assert";
import { writePolicies } from "../../src/algorithms/index.ts";
import { exchange, WHOLE } from "../../src/stores/ledger.ts";
import { writeMessage } from "../../src/stores/ledger-text.ts";
import { encodeState, UNIT } from "../../src/stores/state/bytes.ts";
import { suite } from "../support/suite.ts";

const stored = suite("readStored");

const ten = smoothBursty({ permitsPerSecond: 10 });
const five = smoothBursty({ permitsPerSecond: 5 });
const both = [ten, fixedWindow({ limit: 3, windowMs: 1000 })];

function bytesOf(numbers: readonly Policy[], ...settings: (readonly Policy[])[][]): Uint8Array {
  return encodeState({
    base: UNIT,
    last: 2000,
    batchIds: [{ caller: "12345678", number: 1 }],
    numbers: writePolicies(numbers),
    settings: settings.map((pair) => pair.map((policies) => writePolicies(policies)).join("=")),
    others: [],
    doubles: [0, 0],
  });
}

const numbersOf = (policies: readonly Policy[]) => policies.map(({ numbers }) => numbers);

stored("the policies that the code declares, and when they were written", () => {
  const { declared, inForce, isSet, writtenMs } = readStored(bytesOf(both));
  assert.equal(numbersOf(declared), numbersOf(both));
  assert.equal(numbersOf(inForce), numbersOf(both));
  assert.is(isSet, false);
  assert.is(writtenMs, (UNIT + 2000) / 1000);
});

stored("numbers that were set, before and after the next call", () => {
  for (const written of [[ten], [five]]) {
    const { declared, inForce, isSet } = readStored(bytesOf(written, [[ten], [five]]));
    assert.equal(numbersOf(declared), numbersOf([ten]));
    assert.equal(numbersOf(inForce), numbersOf([five]));
    assert.is(isSet, true);
  }
});

stored("numbers that were set over a limit that is kept in a key", async () => {
  let bytes: Uint8Array = new Uint8Array();
  const policies = { kept: ten, other: fixedWindow({ limit: 3, windowMs: 1000 }) };
  const backend = {
    get: async () => undefined,
    compareAndSet: async (_: string, __: Uint8Array | undefined, after: Uint8Array) => {
      bytes = after;
      return true;
    },
  };
  const limiter = StoreLimiter.create(casStore(backend), "x", policies, {
    limitKey: { kept: "limits" },
  });
  await limiter.update({ ...policies, kept: five });
  const { declared, inForce, isKeptInKey } = readStored(bytes);
  assert.equal(numbersOf(declared), numbersOf([ten, policies.other]));
  assert.equal(numbersOf(inForce), numbersOf([five, policies.other]));
  assert.equal(isKeptInKey, [true, false]);
  assert.equal(readStored(bytesOf([ten])).isKeptInKey, [false]);
});

stored("a setting of other code is not that of the last writer", () => {
  const other = smoothBursty({ permitsPerSecond: 99 });
  assert.is(readStored(bytesOf([ten], [[other], [five]])).isSet, false);
});

stored("other values are errors", () => {
  for (const text of ["", "no limiter", "x".repeat(100)]) {
    assert.throws(() => readStored(new TextEncoder().encode(text)), /no limiter has written/);
  }
});

stored("what is not bytes, such as the null of an absent key, is a TypeError", () => {
  for (const [value, shown] of [
    [null, "null"],
    ["text", '"text"'],
  ] as const) {
    const read = () => readStored(value as unknown as Uint8Array);
    assert.throws(read, new RegExp(`^bytes must be a Uint8Array, .*, got ${shown}$`));
  }
});

stored.run();

const leases = suite("readStoredLeases");

leases("who holds leases, who waits, and which limits are set", () => {
  const found = readStoredLeases([
    ...["q30000:2:process-b:7", "-8999999999999999"],
    ...["l30000:2:process-a:1", "1700000000000"],
    ...["e30000:2:process-b:7", "1001700000000500"],
    ...["s2=5", "4001700000000000"],
  ]);
  assert.equal(found, {
    held: [{ process: "process-a", lapsesMs: 1_700_000_000_000, declared: 2, slots: 1 }],
    waiting: [{ process: "process-b", lapsesMs: 1_700_000_000_500, declared: 2, slots: 1 }],
    limits: [{ declared: 2, inForce: 5 }],
  });
  assert.equal(readStoredLeases([]), { held: [], waiting: [], limits: [] });
});

leases("members of another program are errors", () => {
  for (const member of ["alice", "leo", "eve", "sue", "quinn", ""]) {
    assert.throws(() => readStoredLeases([member, "1"]), /no limiter has written: "/);
  }
});

leases("what is not text, such as the objects of node-redis, is a TypeError", () => {
  const members = [
    { value: "l30000:2:process-a:1", score: 1 },
    { value: "s2=5", score: 2 },
  ];
  const read = () => readStoredLeases(members as unknown as string[]);
  assert.throws(read, /^members must be a list of text, .*, got an object$/);
});

leases.run();

const parts = suite("readStoredParts");

parts("what each process holds, and what it is going to get", () => {
  const message = {
    ...{
      id: "a1",
      region: "S%C3%A3o%20Paulo",
      number: 1,
      answered: 0,
      since: 1,
      sent: 0,
      waitedMs: 0,
      held: 0,
      claim: 0,
    },
    ...{
      want: 0.6 * WHOLE,
      demand: 0.8 * WHOLE,
      leaseMs: 5500,
      gapMs: 1000,
      keepMs: 1000,
    },
    pool: 0.9 * WHOLE,
    rests: 0,
    released: [],
  };
  const start = 1_750_000_000_000;
  const first = exchange(undefined, writeMessage(message), start).record as string;
  const part = { region: "São Paulo", process: "a1", demand: 0.8 };
  assert.equal(readStoredParts(first), {
    parts: [{ ...part, held: 0, coming: 0.6, lapsesMs: start + 5500 }],
    closedUntilMs: 5501,
  });
  const again = writeMessage({ ...message, number: 2, answered: 1, waitedMs: 1000 });
  const { record = "" } = exchange(first, again, start + 1000);
  assert.equal(readStoredParts(record).parts, [
    { ...part, held: 0.6, coming: 0, lapsesMs: start + 6500 },
  ]);
  // what is kept for a member whose lease is over is not listed
  const other = writeMessage({ ...message, id: "b", want: 0.1 * WHOLE, rests: 1 });
  const later = exchange(record, other, start + 7000).record as string;
  assert.equal(
    readStoredParts(later).parts.map(({ process }) => process),
    ["b"],
  );
});

parts("other values are errors", () => {
  for (const text of ["", "no ledger", "1 2 3\n", "1 2 3 4 5\n", "1 2 3 4 5 6\nid eu 1\n"]) {
    assert.throws(() => readStoredParts(text), /^the record of the regions is "/);
  }
  const read = () => readStoredParts(null as unknown as string);
  assert.throws(read, /^text must be a string, .*, got null$/);
});

parts.run();
