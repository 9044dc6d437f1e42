import { Readable } from "node:stream";
import { gzipSync } from "node:zlib";
import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { runs, suite } from "../../../test/support/suite.ts";
import { InOrder } from "../../src/replay/in-order.ts";
import { LONGEST_LINE, readLines } from "../../src/replay/lines.ts";
import { header, type LogEntry, onAnswered } from "../../src/replay/log-entry.ts";
import { TimeSeries } from "../../src/replay/time-series.ts";
import { VirtualClock } from "../../src/replay/virtual-clock.ts";
import { WindowPeak } from "../../src/replay/window-peak.ts";

const test = suite("parts of a replay");

// -- lines --

async function linesOf(chunks: readonly Buffer[]): Promise<string[]> {
  const lines: string[] = [];
  for await (const batch of readLines(Readable.from(chunks))) lines.push(...batch);
  return lines;
}

test("lines: a byte order mark does not matter, however it is cut", async () => {
  const bytes = Buffer.from("\ufeffa\n\ufeffb");
  for (const cut of [0, 1, 2, 3, 4, bytes.length]) {
    const lines = await linesOf([bytes.subarray(0, cut), bytes.subarray(cut)]);
    assert.equal(lines, ["a", "\ufeffb"], `cut at ${cut}`);
  }
});

test("lines: the same however the bytes are cut, packed or not", async () => {
  const text = fc.array(fc.string({ unit: "grapheme", maxLength: 8 }), {
    minLength: 1,
    maxLength: 8,
  });
  const cuts = fc.array(fc.nat(80), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(text, cuts, fc.boolean(), async (parts, places, isPacked) => {
      const lines = [...parts.map((part) => part.replaceAll("\n", "")), "end"];
      const plain = Buffer.from(lines.join("\n"));
      const bytes = isPacked ? gzipSync(plain) : plain;
      const edges = [0, ...places.sort((a, b) => a - b), bytes.length];
      const chunks = edges.slice(1).map((end, i) => bytes.subarray(edges[i], end));
      assert.equal(await linesOf(chunks), lines);
    }),
    { numRuns: runs(60) },
  );
});

test("lines: none without bytes, and the last one needs no end", async () => {
  assert.equal(await linesOf([]), []);
  assert.equal(await linesOf([Buffer.from("a\n")]), ["a"]);
  assert.equal(await linesOf([Buffer.from("a")]), ["a"]);
});

test("lines: of one that is too long only the beginning is kept, however it ends", async () => {
  const half = Buffer.alloc(2 ** 19, "x");
  const halves = Array.from({ length: 9 }, () => half);
  for (const end of ["", "\n", "y\n"]) {
    const [before, long = "", after] = await linesOf([
      Buffer.from("a\n"),
      ...halves,
      Buffer.from(`${end}b`),
    ]);
    assert.is(before, "a");
    assert.ok(long.length > LONGEST_LINE && long.length < 2 * LONGEST_LINE, `${long.length}`);
    assert.is(after, end === "" ? undefined : "b");
  }
});

// -- order --

const entry = (atMs: number, name = "", isCoarse = false): LogEntry => ({
  ...{ atMs, method: "GET", url: `/${name}`, isCoarse, actors: {} },
  ...{ remoteAddress: undefined, status: undefined, header, onAnswered },
});

const played = (order: InOrder, entries: readonly LogEntry[]) => [
  ...entries.flatMap((one) => {
    order.add(one);
    return [...order.due()];
  }),
  ...order.rest(),
];

test("order: lines that are late by no more than the hold come out sorted, all and once", async () => {
  await fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(5000), fc.nat(999)), { maxLength: 300 }), (made) => {
      let now = 0;
      const entries = made.map(([step, late], i) => {
        now += step / 10;
        return entry(now - late, String(i));
      });
      const order = new InOrder(1000, true);
      const out = played(order, entries);
      assert.is(order.late, 0);
      assert.equal(
        out.map(([, { url }]) => url),
        entries.toSorted((a, b) => a.atMs - b.atMs).map(({ url }) => url),
      );
      for (const [atMs, { atMs: readMs }] of out) assert.is(atMs, readMs);
    }),
  );
});

test("order: a shuffled log comes out sorted, and lines of one time as they came", () => {
  const order = new InOrder(Infinity, false);
  const times = Array.from({ length: 5000 }, (_, i) => (i * 7919) % 1009);
  times.forEach((atMs, i) => {
    order.add(entry(atMs, String(i)));
  });
  const played = [...order.rest()].map(([atMs, { url }]) => [atMs, Number(url.slice(1))] as const);
  const wanted = times
    .map((atMs, i) => [atMs, i] as const)
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  assert.is(played.join(" "), wanted.join(" "));
  assert.is(order.late, 0);
});

test("order: what is later still is played at once, and counted", () => {
  const order = new InOrder(10, true);
  const out = played(order, [entry(100), entry(200), entry(50), entry(300)]);
  assert.equal(
    out.map(([atMs]) => atMs),
    [100, 50, 200, 300],
  );
  assert.is(order.late, 1);
});

test("order: whole seconds are spread, unless that is not wanted", () => {
  const lines = [
    entry(1000, "a", true),
    entry(2000, "b", true),
    entry(1000, "c", true),
    entry(1000, "d"),
  ];
  const spread = played(new InOrder(1000, true), lines);
  assert.equal(
    spread.map(([atMs, { url }]) => [Math.round(atMs), url]),
    [
      [1000, "/a"],
      [1333, "/c"],
      [1667, "/d"],
      [2000, "/b"],
    ],
  );
  assert.equal(
    played(new InOrder(1000, false), lines).map(([atMs]) => atMs),
    [1000, 1000, 1000, 2000],
  );
});

test("order: no more are held than there is room for", () => {
  const order = new InOrder(1e9, true, 200);
  let out = 0;
  for (let i = 0; i < 1000; i++) {
    order.add(entry(i));
    out += [...order.due()].length;
  }
  assert.is(out, 800);
});

// -- the clock --

test("clock: alarms at their own instants, in order, unless they are cancelled", async () => {
  await fc.assert(
    fc.property(fc.array(fc.nat(50), { maxLength: 60 }), fc.nat(60), (instants, off) => {
      const clock = new VirtualClock(1e12);
      const woken: (readonly [number, number])[] = [];
      const timers = instants.map((atMs, i) =>
        clock.wakeAt(atMs, () => {
          woken.push([atMs, i]);
          assert.is(clock.now(), atMs);
        }),
      );
      timers[off]?.cancel();
      clock.moveTo(25);
      assert.is(clock.now(), 25);
      assert.ok(woken.every(([atMs]) => atMs <= 25));
      clock.moveTo(Infinity);
      const expected = instants
        .map((atMs, i) => [atMs, i] as const)
        .filter(([, i]) => i !== off)
        .sort(([a, i], [b, j]) => a - b || i - j);
      assert.equal(woken, expected);
      assert.not.ok(clock.moveTo(Infinity));
    }),
  );
});

test("clock: what is set on the way is woken too, and time does not go back", () => {
  const clock = new VirtualClock(0);
  const woken: number[] = [];
  clock.wakeAt(1, () => {
    woken.push(clock.now());
    clock.wakeAt(2, () => woken.push(clock.now()));
  });
  assert.ok(clock.moveTo(10));
  assert.equal(woken, [1, 2]);
  clock.moveTo(5);
  assert.is(clock.now(), 10);
});

// -- the most in a window --

test("window: the most of any window, its beginning excluded", async () => {
  await fc.assert(
    fc.property(fc.array(fc.nat(900), { minLength: 1, maxLength: 150 }), (steps) => {
      let now = 1.7e12;
      const times = steps.map((step) => {
        now += Math.floor(step ** 2 / 700);
        return now;
      });
      const peak = new WindowPeak(1000);
      for (const atMs of times) peak.add(atMs);
      const counts = times.map(
        (end) => times.filter((one) => one <= end && one > end - 1000).length,
      );
      assert.is(peak.most, Math.max(...counts));
    }),
  );
});

test("window: instants that are a window apart do not share one, whatever their fractions", () => {
  const peak = new WindowPeak(1000);
  for (let i = 0; i < 3000; i++) peak.add(1.7e12 + i / 3);
  assert.is(peak.most, 3000);
  const paced = new WindowPeak(1000);
  for (let i = 0; i < 3000; i++) paced.add(1.7e12 + 0.1 + (i * 1000) / 3);
  assert.is(paced.most, 3);
});

test("window: an earlier time counts as the last one", () => {
  const peak = new WindowPeak(1000);
  for (const atMs of [0, 1500, 400, 2400]) peak.add(atMs);
  assert.is(peak.most, 3);
});

// -- counts over time --

test("series: few points whatever the time, and nothing is lost", async () => {
  await fc.assert(
    fc.property(fc.array(fc.nat(90_000), { minLength: 1, maxLength: 100 }), (seconds) => {
      const series = new TimeSeries();
      const times = seconds.map((second) => second * 1000).sort((a, b) => a - b);
      for (const [i, atMs] of times.entries()) series.add(i % 2 === 0 ? "passed" : "refused", atMs);
      const { stepMs, startMs, counts } = series.points();
      const length = counts.passed.length;
      assert.ok(length <= 720 && counts.refused.length === length);
      const expected = new Array<number>(length).fill(0);
      for (const atMs of times) {
        const at = Math.floor((atMs - startMs) / stepMs);
        expected[at] = (expected[at] ?? 0) + 1;
      }
      assert.equal(
        counts.passed.map((count, i) => count + (counts.refused[i] ?? 0)),
        expected,
      );
      assert.is(counts.waited.length, length);
    }),
  );
  assert.equal(new TimeSeries().points().counts.passed, []);
});

test("series: the busiest second of each point, also where requests are counted late", () => {
  const series = new TimeSeries();
  for (const second of [0, 0, 0, 1, 2, 2, 1000, 1001, 0, 1001, 1001]) {
    series.add("passed", second * 1000 + 999);
  }
  const { stepMs, peaks, counts } = series.points();
  assert.is(stepMs, 2000);
  assert.equal([peaks[0], peaks[1], peaks[2], peaks[500]], [4, 2, 0, 3]);
  assert.is(peaks.length, counts.passed.length);
  // a count that comes later than many seconds begins anew: the peak is never too high
  for (let second = 2000; second < 3000; second++) series.add("waited", second * 1000);
  series.add("waited", 0);
  assert.is(series.points().peaks[0], 4);
});

test.run();
