import fc from "fast-check";
import * as assert from "uvu/assert";
import { type Linked, LinkedList } from "../../src/ground/linked-list.ts";
import { suite } from "../support/suite.ts";

class Member implements Linked<Member> {
  before: Member | undefined;
  after: Member | undefined;
}

const test = suite("linked list");

test("keeps the order of addition while members come and go, as a set does", () => {
  const histories = fc.array(fc.tuple(fc.nat(7), fc.boolean()), { maxLength: 200 });
  fc.assert(
    fc.property(histories, (history) => {
      const members = Array.from({ length: 8 }, () => new Member());
      const list = new LinkedList<Member>();
      const model = new Set<Member>();
      for (const [index, adds] of history) {
        const member = members[index] as Member;
        if (adds && !model.has(member)) {
          list.add(member);
          model.add(member);
        } else {
          assert.is(list.has(member), model.delete(member));
          if (list.has(member)) list.remove(member);
        }
        assert.ok([...list].every((each, i) => each === [...model][i]));
        assert.is([...list].length, model.size);
      }
    }),
  );
});

test.run();
