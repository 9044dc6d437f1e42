import fc from "fast-check";
import * as assert from "uvu/assert";
import { FairEntry } from "../../src/fair/fair-entry.ts";
import { heirOf } from "../../src/fair/heir-of.ts";
import { Ranks } from "../../src/fair/ranks.ts";
import { suite } from "../support/suite.ts";

const test = suite("ranks");

interface Member {
  readonly fairEntry: FairEntry<Member>;
}

const request = fc.record({
  rank: fc.nat({ max: 2 }),
  share: fc.constantFrom("a", "b", "c"),
  permits: fc.constantFrom(1, 1, 2, 5),
  weight: fc.constantFrom(1, 1, 2),
});
type Request = typeof request extends fc.Arbitrary<infer R> ? R : never;
const step = fc.oneof(
  request.map((asked) => ({ op: "append" as const, asked })),
  request.map((asked) => ({ op: "charge" as const, asked })),
  fc.constant({ op: "shift" as const }),
  fc.constant({ op: "leave" as const }),
);

const entryOf = ({ rank, share, permits, weight }: Request) =>
  new FairEntry<Member>(rank, share, permits, weight);

test("a request is next exactly if it would be served first after it has joined", () => {
  let isNextCount = 0;
  let isNotCount = 0;
  const isExact = (steps: Iterable<{ op: string; asked?: Request }>, aging: number) => {
    const ranks = new Ranks<Member>(3, aging);
    const members: Member[] = [];
    let now = 0;
    for (const { op, asked } of steps) {
      now += 1;
      const turn = asked && entryOf(asked);
      if (op === "shift") ranks.shift(now);
      else if (op === "leave") for (const member of members.splice(0, 2)) ranks.remove(member);
      else if (turn !== undefined && op === "charge") ranks.charge(turn, now);
      else if (turn !== undefined) {
        const isNext = ranks.isNext(turn);
        const member = { fairEntry: turn };
        ranks.append(member, now);
        assert.is(ranks.head === member, isNext);
        members.push(member);
        if (isNext) isNextCount += 1;
        else isNotCount += 1;
      }
    }
  };
  const steps = fc.array(step, { minLength: 5, maxLength: 40, size: "max" });
  fc.assert(fc.property(steps, fc.constantFrom(Infinity, 3, 10), isExact), { numRuns: 500 });
  assert.ok(Math.min(isNextCount, isNotCount) > 500);
});

for (const [title, asked, others, inherits] of [
  ["no other", [1, "a", 1], [], true],
  ["one of another share", [1, "a", 1], [[1, "b", 1]], true],
  ["one of its share and another priority", [1, "a", 1], [[0, "a", 1]], true],
  ["one of its share and priority", [1, "a", 1], [[1, "a", 1]], false],
  ["one that asked for more", [1, "a", 2], [], false],
] as const) {
  test(`who inherits the place of one that leaves, beside ${title}`, () => {
    const memberOf = ([rank, share, permits]: readonly [number, string, number]): Member => ({
      fairEntry: new FairEntry(rank, share, permits, 1),
    });
    const ranks = new Ranks<Member>(2, Infinity);
    const next = memberOf([1, "a", 1]);
    ranks.append(next, 0);
    const leaving = memberOf(asked);
    const heir = heirOf(leaving.fairEntry, ranks, [leaving, ...others.map(memberOf)]);
    assert.is(heir, inherits ? next : undefined);
  });
}

test.run();
