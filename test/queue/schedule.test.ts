import * as assert from "uvu/assert";
import { Slots } from "../../src/concurrency/slots.ts";
import { Schedule } from "../../src/queue/schedule.ts";
import { UNKNOWN } from "../../src/queue/supply.ts";
import { Change, Waiter } from "../../src/queue/waiter.ts";
import { suite } from "../support/suite.ts";

const test = suite("schedule");

class Caller extends Waiter {
  readonly #deadline: number;
  readonly #awaited: boolean;

  constructor(deadline = Infinity, awaited = true) {
    super(0, 1);
    this.#deadline = deadline;
    this.#awaited = awaited;
  }

  override get deadline(): number {
    return this.#deadline;
  }

  override get awaited(): boolean {
    return this.#awaited;
  }

  override release(): void {}
  override abort(): void {}
}

/** One slot, which somebody holds. */
function full() {
  const refused: Waiter[] = [];
  const schedule = new Schedule(new Slots(1, 1), (waiter) => void refused.push(waiter));
  return { schedule, refused };
}

test("a caller whose instant is not known is not too late, and counts in an estimate", () => {
  const { schedule, refused } = full();
  schedule.append(new Caller(1000), 0);
  const { supply, at } = schedule.replay(0);
  assert.equal([supply.active, at, refused], [2, UNKNOWN, []]);
});

test("changes that wait for a reservation are entries, but no waiters", () => {
  const { schedule } = full();
  const [reservation, caller] = [new Caller(Infinity, false), new Caller()];
  const entries = [reservation, new Change(0, () => {}), caller];
  for (const entry of entries) schedule.append(entry, 0);
  assert.ok([...schedule.entries()].every((entry, i) => entry === entries[i]));
  assert.equal([schedule.permits, schedule.isAwaited], [2, true]);
  schedule.remove(caller);
  assert.equal(
    [schedule.permits, schedule.isAwaited, schedule.head === reservation],
    [1, false, true],
  );
});

test.run();
