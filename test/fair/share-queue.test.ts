import fc from "fast-check";
import * as assert from "uvu/assert";
import { FairEntry } from "../../src/fair/fair-entry.ts";
import { ShareQueue } from "../../src/fair/share-queue.ts";
import { suite } from "../support/suite.ts";

const test = suite("share queue");

const SHARES = ["a", "b", "c", "d"];

type Step =
  | { readonly op: "append"; readonly share: number; readonly permits: number }
  | { readonly op: "shift" }
  | { readonly op: "leave"; readonly which: number };

const append = fc.record({
  op: fc.constant("append" as const),
  share: fc.nat({ max: SHARES.length - 1 }),
  permits: fc.constantFrom(1, 1, 1, 2, 5, 20, 0.25),
});
const shift = fc.constant<Step>({ op: "shift" });
const leave = fc.record({ op: fc.constant("leave" as const), which: fc.nat({ max: 20 }) });
const histories = (...kinds: fc.Arbitrary<Step>[]) =>
  fc.array(fc.oneof(...kinds), { minLength: 10, maxLength: 100, size: "max" });
const weights = fc.array(fc.constantFrom(1, 1, 2, 5, 0.25), {
  minLength: SHARES.length,
  maxLength: SHARES.length,
});

/** A queue, with what waits in it. */
class World {
  readonly queue = new ShareQueue<number>();
  readonly waiting: FairEntry<number>[] = [];
  readonly #weights: readonly number[];
  #made = 0;

  constructor(weights: readonly number[]) {
    this.#weights = weights;
  }

  append(share: number, permits: number): FairEntry<number> {
    const turn = new FairEntry<number>(0, SHARES[share] ?? "", permits, this.#weights[share] ?? 1);
    turn.item = this.#made++;
    this.queue.append(turn);
    this.waiting.push(turn);
    return turn;
  }

  shift(): FairEntry<number> | undefined {
    if (this.queue.head === undefined) return undefined;
    const turn = this.queue.shift();
    this.#drop(turn);
    return turn;
  }

  leave(turn: FairEntry<number>): void {
    this.queue.remove(turn);
    this.#drop(turn);
  }

  #drop(turn: FairEntry<number>): void {
    this.waiting.splice(this.waiting.indexOf(turn), 1);
  }
}

test("with requests that leave, what two shares with waiters are served differs by at most the bound", () => {
  const isFair = (steps: readonly Step[], w: readonly number[]) => {
    const world = new World(w);
    /** What each share was served per weight, and its largest request. */
    const served = new Map(SHARES.map((name) => [name, 0]));
    const largest = new Map(SHARES.map((name) => [name, 0]));
    /** The least and the most of the difference of two shares since both have waiters. */
    const ranges = new Map<string, [number, number]>();
    for (const step of steps) {
      if (step.op === "append") {
        const { name, cost } = world.append(step.share, step.permits);
        largest.set(name, Math.max(cost, largest.get(name) ?? 0));
      } else if (step.op === "shift") {
        const { name = "", cost = 0 } = world.shift() ?? {};
        served.set(name, (served.get(name) ?? 0) + cost);
      } else {
        const turn = world.waiting[step.which % world.waiting.length];
        if (turn !== undefined) world.leave(turn);
      }
      const names = new Set(world.waiting.map(({ name }) => name));
      for (const a of SHARES) {
        for (const b of SHARES) {
          if (a >= b) continue;
          const difference = Number(served.get(a)) - Number(served.get(b));
          const [least, most] = ranges.get(a + b) ?? [difference, difference];
          const range: [number, number] = [Math.min(least, difference), Math.max(most, difference)];
          const bound = Number(largest.get(a)) + Number(largest.get(b));
          if (ranges.has(a + b)) assert.ok(range[1] - range[0] <= bound * (1 + 1e-9), `${bound}`);
          if (names.has(a) && names.has(b)) ranges.set(a + b, range);
          else ranges.delete(a + b);
        }
      }
    }
  };
  fc.assert(fc.property(histories(append, append, shift, leave), weights, isFair), {
    numRuns: 2000,
  });
});

test("a request that leaves changes nothing else, but that its share counts as waiting", () => {
  let compared = 0;
  const isNeutral = (
    steps: readonly Step[],
    w: readonly number[],
    { share, permits }: { readonly share: number; readonly permits: number },
    [from, stay]: readonly [number, number],
  ) => {
    const [world, without] = [new World(w), new World(w)];
    const order: string[] = [];
    const expected: string[] = [];
    let extra: FairEntry<number> | undefined;
    /** Whether its share always, or never, had another request meanwhile. */
    const hadOthers = new Set<boolean>();
    const leave = () => {
      if (extra !== undefined) world.leave(extra);
      extra = undefined;
    };
    const look = () => {
      const others = world.waiting.filter((turn) => turn !== extra);
      if (extra !== undefined) hadOthers.add(others.some(({ name }) => name === SHARES[share]));
    };
    for (const [i, step] of steps.entries()) {
      if (i === from) extra = world.append(share, permits);
      look();
      if (i === from + stay) leave();
      if (step.op === "append") {
        world.append(step.share, step.permits);
        without.append(step.share, step.permits);
      } else {
        if (world.queue.head === extra) leave();
        order.push(world.shift()?.name ?? "");
        expected.push(without.shift()?.name ?? "");
      }
      look();
    }
    leave();
    if (hadOthers.size > 1) return;
    compared += 1;
    assert.equal(order, expected);
  };
  const when = fc.tuple(fc.nat({ max: 60 }), fc.integer({ min: 1, max: 30 }));
  fc.assert(fc.property(histories(append, shift), weights, append, when, isNeutral), {
    numRuns: 2000,
  });
  assert.ok(compared > 500, `${compared}`);
});

test("a large request that leaves gives those behind it no more than the others", () => {
  const world = new World([1, 1, 1, 1]);
  const large = world.append(0, 20);
  for (let i = 0; i < 30; i++) world.append(0, 1);
  for (let i = 0; i < 30; i++) world.append(1, 1);
  for (let i = 0; i < 15; i++) assert.is(world.shift()?.name, "b");
  world.leave(large);
  const names = Array.from({ length: 20 }, () => world.shift()?.name);
  assert.is(names.join(""), "aabababababababababa");
});

test("a refund gives a share no more than it cost, however far the others have come", () => {
  const queue = new ShareQueue<number>();
  const append = (share: string) => queue.append(new FairEntry(0, share, 1, 1));
  const charged = new FairEntry<number>(0, "a", 2, 1);
  queue.charge(charged);
  for (let i = 0; i < 20; i++) append("b");
  for (let i = 0; i < 10; i++) queue.shift();
  for (let i = 0; i < 5; i++) append("a");
  queue.refund(charged);
  const names = Array.from({ length: 9 }, () => queue.shift().name);
  assert.is(names.join(""), "aaabababb");
});

for (const [served, remembered] of [
  [1000, 1000],
  [1001, 500],
  [1500, 999],
] as const) {
  test(`of ${served} served shares the debts of ${remembered} are remembered, the largest`, () => {
    const queue = new ShareQueue<number>();
    const entryOf = (share: string, cost: number) => new FairEntry<number>(0, share, cost, 1);
    for (let i = 0; i < served; i++) queue.append(entryOf(`served ${i}`, 5000 + i));
    const waiting = entryOf("waiting", 10_000);
    queue.append(waiting);
    for (let i = 0; i < served; i++) queue.shift();
    assert.is(queue.firstOf("waiting"), waiting);
    // a share without a debt would be served before one that asks for more
    const owes = (i: number) => !queue.isNext(entryOf(`served ${i}`, 1));
    const debts = Array.from({ length: served }, (_, i) => owes(i));
    assert.is(debts.filter(Boolean).length, remembered);
    assert.is(debts.indexOf(true), served - remembered);
  });
}

test.run();
