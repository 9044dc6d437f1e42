/** A caller that waits in two lines gets one answer. */
import * as assert from "uvu/assert";
import { eitherOf, type Line } from "../../src/regions/two-lines.ts";
import { suite } from "../support/suite.ts";

const test = suite("two lines");

function line(answer: Promise<boolean>, canDoWithout = true) {
  const seen = { given: 0, signal: undefined as AbortSignal | undefined };
  const made: Line<boolean> = {
    wait: (signal) => {
      seen.signal = signal;
      return answer;
    },
    canDoWithout: () => canDoWithout,
    giveBack: () => {
      seen.given += 1;
    },
  };
  return { made, seen };
}

const zero = { granted: 0, refused: 0, cancelled: 0, failed: 0, waiting: 0 };
const ask = (lines: readonly Line<boolean>[], counts = { ...zero }) =>
  eitherOf(lines, (isGranted) => isGranted, undefined, counts);
const never = new Promise<boolean>(() => {});

test("what both lines grant at once is given back once", async () => {
  const [one, other] = [line(Promise.resolve(true)), line(Promise.resolve(true))];
  assert.is(await ask([one.made, other.made]), true);
  await Promise.resolve();
  assert.equal([one.seen.given, other.seen.given], [0, 1]);
});

test("the line that grants nothing is left, and its cancellation is not counted", async () => {
  const [one, other] = [line(never), line(Promise.resolve(true))];
  const counts = { ...zero, cancelled: 1 };
  assert.is(await ask([one.made, other.made], counts), true);
  assert.is(one.seen.signal?.aborted, true);
  assert.equal(counts, zero);
});

test("a refusal counts when both refuse, and once", async () => {
  const counts = { ...zero, refused: 2 };
  const lines = [line(Promise.resolve(false)), line(Promise.resolve(false))];
  assert.is(
    await ask(
      lines.map(({ made }) => made),
      counts,
    ),
    false,
  );
  assert.is(counts.refused, 1);
});

test("an error ends the call, unless the caller can do without that line", async () => {
  const down = new Error("down");
  const failed = () => Promise.reject<boolean>(down);
  const done = [line(failed()), line(Promise.resolve(true))];
  assert.is(await ask(done.map(({ made }) => made)), true);
  const refused = [line(failed()), line(Promise.resolve(false))];
  assert.is(await ask(refused.map(({ made }) => made)), false);
  for (const lines of [
    [line(failed(), false), line(never)],
    [line(failed()), line(failed())],
  ]) {
    const error = await ask(lines.map(({ made }) => made)).catch((reason) => reason);
    assert.is(error, down);
  }
});

test.run();
