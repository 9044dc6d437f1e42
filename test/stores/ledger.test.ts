import fc from "fast-check";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { exchange } from "../../src/stores/ledger.ts";
import { type LedgerMessage, readLedger, writeMessage } from "../../src/stores/ledger-text.ts";
import { ledgerScript } from "../../src/stores/redis/scripts.ts";
import { freshUrl } from "../support/redis/server.ts";
import { progress, runs, suite } from "../support/suite.ts";

const POOL = 90;
const LEASE_MS = 1000;
const GAP_MS = 200;
const KEEP_MS = 5000;
/** Parts rest for up to so much longer than they must. */
const STEP_MS = Math.ceil(KEEP_MS / 16);
/** The ledger as a whole was created long before. */
const OLD = 1;

/** What a member says; how much of what it releases is fresh, and for how long the rest rests. */
type Said = Partial<LedgerMessage> & { readonly fresh?: number; readonly restMs?: number };

/** A ledger with members who say what they hold, as honest ones do. */
class Ledger {
  text: string | undefined;
  /** For how long the record is kept. */
  lifeMs = 0;
  now = 1_000_000;
  readonly #numbers = new Map<string, number>();
  /** The number of the last message in each member's row, and when it was sent. */
  readonly #answered = new Map<string, { number: number; sentMs: number }>();
  /** Since when each member knows of a promise. */
  readonly #promised = new Map<string, number>();

  /** Says something to the ledger. @returns what the member holds from now on, and how much of what came is fresh */
  say(
    id: string,
    { fresh: freed = 0, restMs = KEEP_MS, ...said }: Said,
  ): { held: number; fresh: number } {
    const number = (this.#numbers.get(id) ?? 0) + 1;
    this.#numbers.set(id, number);
    const none = {
      held: 0,
      claim: 0,
      want: 0,
      demand: 0,
      since: OLD,
      sent: 0,
      waitedMs: 0,
      released: [
        { number, parts: freed, restMs: 0 },
        { number, parts: POOL, restMs },
      ],
    };
    const times = { leaseMs: LEASE_MS, gapMs: GAP_MS, keepMs: KEEP_MS, pool: POOL, rests: 0 };
    const last = this.#answered.get(id);
    const isKnown = last !== undefined && this.now < last.sentMs + LEASE_MS + KEEP_MS;
    const answered = isKnown ? last.number : 0;
    const waitedMs = this.now - (this.#promised.get(id) ?? this.now);
    const message = writeMessage({
      ...none,
      ...times,
      id,
      region: id,
      number,
      answered,
      waitedMs,
      ...said,
    });
    const { reply, record, lifeMs } = exchange(this.text, message, this.now);
    this.text = record ?? this.text;
    this.lifeMs = record === undefined ? this.lifeMs : lifeMs;
    const [head = "", ...lines] = reply.split("\n");
    if (!head.startsWith("late")) {
      const row = readLedger(lines.join("\n")).rows.find((one) => one.id === id);
      this.#answered.set(id, { number: row?.number ?? 0, sentMs: this.now });
    }
    const [held = NaN, fresh = NaN] = head.split(" ").map(Number);
    if ((this.row(id)?.promised ?? 0) === 0) this.#promised.delete(id);
    else if (!this.#promised.has(id) || held > (said.held ?? 0)) this.#promised.set(id, this.now);
    return { held, fresh };
  }

  row(id: string) {
    return readLedger(this.text ?? "").rows.find((row) => row.id === id);
  }

  /** A and B hold 60 and 30. */
  static shared(): Ledger {
    const ledger = new Ledger();
    ledger.say("a", { want: 60 });
    ledger.say("b", { want: 30 });
    ledger.now += GAP_MS;
    assert.is(ledger.say("a", { want: 60 }).held, 60);
    assert.is(ledger.say("b", { want: 30 }).held, 30);
    return ledger;
  }
}

const test = suite("ledger of a divided limit");

test("a free part is promised first, and may be used one gap later", () => {
  const ledger = new Ledger();
  assert.is(ledger.say("a", { want: 60 }).held, 0);
  ledger.now += GAP_MS - 1;
  assert.is(ledger.say("a", { want: 60 }).held, 0);
  ledger.now += 1;
  assert.equal(ledger.say("a", { want: 60 }), { held: 60, fresh: 60 });
});

test("a released part goes at once to the member who lacks it, with what is fresh of it", () => {
  const ledger = Ledger.shared();
  ledger.say("b", { held: 30, want: 60 });
  ledger.say("a", { held: 20, want: 20, fresh: 10 });
  assert.equal(ledger.say("b", { held: 30, want: 60 }), { held: 60, fresh: 10 });
});

test("where parts rest only fresh ones go at once, and the others rest as long as they must, whatever rests beside them", () => {
  const ledger = Ledger.shared();
  ledger.say("b", { held: 30, want: 90, rests: 1 });
  ledger.say("a", { held: 40, want: 40, restMs: 4 * KEEP_MS, rests: 1 });
  ledger.say("a", { held: 10, want: 10, fresh: 10, restMs: 1, rests: 1 });
  assert.equal(ledger.say("b", { held: 30, want: 90, rests: 1 }), { held: 40, fresh: 10 });
  const { resting } = readLedger(ledger.text ?? "");
  assert.equal(
    resting.map(({ parts }) => parts),
    [20, 20],
  );
});

test("what nobody lacks becomes free, and is promised to who asks next", () => {
  const ledger = Ledger.shared();
  ledger.say("a", { held: 20, want: 20 });
  assert.is(ledger.say("b", { held: 30, want: 60 }).held, 30);
  ledger.now += GAP_MS;
  assert.equal(ledger.say("b", { held: 30, want: 60 }), { held: 60, fresh: 0 });
});

test("free parts that were used are fresh again when nothing of them matters any more", () => {
  const ledger = Ledger.shared();
  ledger.say("a", { held: 0, want: 0 });
  for (let ms = 0; ms < KEEP_MS + 2 * GAP_MS; ms += GAP_MS) {
    ledger.now += GAP_MS;
    ledger.say("b", { held: 30, want: 30 });
  }
  ledger.say("b", { held: 30, want: 90 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("b", { held: 30, want: 90 }), { held: 90, fresh: 60 });
});

test("parts that were used are fresh when their member says, also if no member has talked meanwhile", () => {
  const ledger = Ledger.shared();
  ledger.say("a", { held: 0, want: 0, restMs: 1000 });
  ledger.say("b", { held: 0, want: 0, restMs: 3000 });
  ledger.now += 2999;
  ledger.say("b", { want: 30 });
  ledger.now += STEP_MS;
  assert.equal(ledger.say("b", { want: 90 }), { held: 30, fresh: 30 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("b", { held: 30, want: 90 }), { held: 90, fresh: 60 });
});

test("a lease that is over frees its part, and not before", () => {
  const ledger = Ledger.shared();
  ledger.now += LEASE_MS - 1;
  ledger.say("b", { held: 30, want: 90 });
  assert.is(ledger.row("b")?.promised, 0);
  ledger.now += 1;
  ledger.say("b", { held: 30, want: 90 });
  assert.is(ledger.row("b")?.promised, 60);
});

test("a message that comes late, or twice, changes nothing", () => {
  const ledger = Ledger.shared();
  const before = ledger.text;
  assert.ok(Number.isNaN(ledger.say("a", { number: 1, held: 0, want: 0 }).held));
  assert.is(ledger.text, before);
});

test("a message whose lease is over changes nothing, and its sender learns the time", () => {
  const ledger = Ledger.shared();
  const before = ledger.text;
  const sent = ledger.now - LEASE_MS;
  assert.is(ledger.say("a", { sent, held: 60, want: 60 }).held, 60);
  ledger.text = before;
  ledger.now += 1;
  ledger.say("a", { sent, held: 60, want: 60 });
  assert.is(ledger.text, before);
});

test("a lost reply loses no part: the member still holds what it said before", () => {
  const ledger = Ledger.shared();
  ledger.say("b", { held: 30, want: 60 });
  ledger.say("a", { held: 20, want: 20 });
  // B does not learn that it holds 60
  ledger.say("b", { held: 30, want: 60 });
  assert.is(ledger.say("b", { held: 30, want: 60 }).held, 30);
  ledger.now += GAP_MS;
  assert.is(ledger.say("b", { held: 30, want: 60 }).held, 60);
});

/** What shows that the ledger has forgotten something, and what it is told then. */
const forgotten: Readonly<Record<string, (ledger: Ledger) => void>> = {
  "a later message of a member was answered": (ledger) => {
    const { text } = ledger;
    ledger.say("a", { held: 60, want: 60 });
    ledger.text = text;
    ledger.say("a", { held: 60, want: 60 });
  },
  "a member holds more than its row says": (ledger) => {
    ledger.say("a", { held: 70, want: 70 });
  },
  "a member has no row and holds something": (ledger) => {
    ledger.text = undefined;
    ledger.say("a", { held: 60, want: 60, answered: 0 });
  },
  "the ledger was created anew": (ledger) => {
    ledger.say("a", { held: 60, want: 60, since: ledger.now });
  },
};

for (const [title, forget] of Object.entries(forgotten)) {
  test(`${title}: nothing is given to others until all leases are over`, () => {
    const ledger = Ledger.shared();
    forget(ledger);
    const held = ledger.row("a")?.held ?? 0;
    for (let ms = 0; ms < LEASE_MS; ms += GAP_MS) {
      ledger.say("a", { held, want: held });
      ledger.say("b", { held: 30, want: 90 });
      assert.is(ledger.row("b")?.promised, 0);
      assert.is(ledger.row("b")?.gift, 0);
      ledger.now += GAP_MS;
    }
    ledger.say("a", { held: 0, want: 0 });
    const { held: given } = ledger.say("b", { held: 30, want: 90 });
    ledger.now += GAP_MS;
    assert.is(ledger.say("b", { held: given, want: 90 }).held, 90);
  });
}

test("a promise is void when the ledger turns out to have forgotten something", () => {
  const ledger = new Ledger();
  ledger.say("a", { want: 60 });
  const before = ledger.text;
  ledger.now += GAP_MS;
  assert.is(ledger.say("a", { want: 60 }).held, 60);
  ledger.text = before?.replace(/^a .*\n/m, "");
  ledger.say("b", { want: 90 });
  assert.is(ledger.row("b")?.promised, 90);
  ledger.say("a", { held: 60, want: 60 });
  ledger.now += GAP_MS;
  assert.is(ledger.say("b", { want: 90 }).held, 0);
});

test("what was handed to a member is void, too: it may have used and released it long ago", () => {
  const ledger = Ledger.shared();
  ledger.say("b", { held: 30, want: 60 });
  ledger.say("a", { held: 30, want: 30 });
  const before = ledger.text;
  assert.is(ledger.say("b", { held: 30, want: 60 }).held, 60);
  ledger.say("a", { held: 30, want: 60 });
  ledger.say("b", { held: 30, want: 30 });
  assert.is(ledger.say("a", { held: 30, want: 60 }).held, 60);
  ledger.text = before;
  ledger.say("a", { held: 60, want: 60 });
  assert.is(ledger.say("b", { held: 30, want: 60 }).held, 30);
});

test("nor can others' messages hide that it took it long ago", () => {
  const ledger = Ledger.shared();
  ledger.say("b", { held: 30, want: 60 });
  ledger.say("a", { held: 30, want: 30 });
  const before = ledger.text;
  assert.is(ledger.say("b", { held: 30, want: 60 }).held, 60);
  ledger.say("c", { want: 30 });
  ledger.say("b", { held: 30, want: 30 });
  assert.is(ledger.say("c", { want: 30 }).held, 30);
  ledger.text = before;
  for (let i = 0; i < 9; i++) ledger.say("d", {});
  assert.is(ledger.say("b", { held: 30, want: 60 }).held, 30);
});

test("a promise of the past is no promise of now", () => {
  const ledger = new Ledger();
  ledger.say("b", { want: 60 });
  ledger.text = undefined;
  ledger.now += GAP_MS;
  ledger.say("a", { want: 90, demand: 90 });
  const { closed } = readLedger(ledger.text ?? "");
  ledger.say("b", { want: 60 });
  assert.ok(readLedger(ledger.text ?? "").closed > Math.max(ledger.now, closed));
});

test("what the ledger has forgotten may have been used: nothing is fresh", () => {
  const ledger = new Ledger();
  ledger.say("b", { want: 10 });
  ledger.say("a", { want: 60 });
  ledger.now += GAP_MS;
  const before = ledger.text;
  assert.equal(ledger.say("a", { want: 60 }), { held: 60, fresh: 60 });
  ledger.say("a", { held: 0, want: 10 });
  ledger.text = before;
  ledger.say("a", { held: 0, want: 10 });
  ledger.now += LEASE_MS;
  ledger.say("b", { want: 90 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("b", { want: 90 }), { held: 90, fresh: 0 });
});

test("nor is it in a record that begins while what a lost one knew may matter", () => {
  const ledger = new Ledger();
  const since = ledger.now - KEEP_MS;
  ledger.say("a", { want: 60, since });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("a", { want: 60, since }), { held: 60, fresh: 0 });
});

test("what is forgotten may be used for as long as the ledger is closed, and is fresh after that", () => {
  const leaseMs = 10 * LEASE_MS;
  const opened: readonly ((ledger: Ledger) => void)[] = [
    (ledger) => ledger.say("b", { held: 40, want: 90, leaseMs }),
    (ledger) => {
      ledger.text = undefined;
      ledger.say("b", { want: 90, leaseMs, since: ledger.now });
    },
  ];
  for (const open of opened) {
    const ledger = Ledger.shared();
    open(ledger);
    ledger.now += leaseMs + KEEP_MS - GAP_MS - 1;
    ledger.say("c", { want: 45 });
    ledger.now += GAP_MS;
    assert.equal(ledger.say("c", { want: 90 }), { held: 45, fresh: 0 });
    ledger.now += 3 * GAP_MS;
    assert.equal(ledger.say("c", { held: 45, want: 90 }), { held: 90, fresh: 45 });
  }
});

test("what a lease let through is fresh after that lease, however late that is noticed", () => {
  const ledger = Ledger.shared();
  ledger.now += LEASE_MS + KEEP_MS + GAP_MS - 1;
  ledger.say("c", { want: 45 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("c", { want: 90 }), { held: 45, fresh: 0 });
  ledger.now += STEP_MS;
  assert.equal(ledger.say("c", { held: 45, want: 90 }), { held: 90, fresh: 45 });
});

test("a record lives until what its leases let through is back, whoever writes last", () => {
  const ledger = Ledger.shared();
  ledger.say("a", { held: 60, want: 60, leaseMs: 100 * LEASE_MS });
  ledger.now += LEASE_MS;
  ledger.say("b", { held: 0, want: 0 });
  assert.is(ledger.lifeMs, 100 * LEASE_MS + KEEP_MS + 2 * GAP_MS);
});

test("a claim that is late by a lease meets its row in the record, and shows nothing", () => {
  const ledger = Ledger.shared();
  const answered = ledger.row("a")?.number ?? 0;
  // the member claims for as long as its row may last, by its clock
  ledger.now += LEASE_MS + KEEP_MS;
  const sent = ledger.now - 1;
  ledger.now = sent + LEASE_MS;
  assert.ok(ledger.lifeMs > LEASE_MS + KEEP_MS + LEASE_MS - 1);
  ledger.say("a", { claim: 60, rests: 1, answered, sent });
  const { closed } = readLedger(ledger.text ?? "");
  assert.ok(closed <= ledger.now);
});

test("a member with short windows makes no parts fresh that others have used", () => {
  const ledger = Ledger.shared();
  ledger.say("c", { want: 1, leaseMs: 2 * KEEP_MS });
  ledger.say("a", { held: 0, want: 0 });
  ledger.say("b", { held: 0, fresh: 30, want: 0, keepMs: 0 });
  for (let ms = 0; ms < KEEP_MS - 2 * GAP_MS; ms += GAP_MS) {
    ledger.now += GAP_MS;
    ledger.say("b", { keepMs: 0 });
  }
  ledger.say("b", { want: 90, keepMs: 0 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("b", { want: 90, keepMs: 0 }), { held: 89, fresh: 30 });
});

/** How all parts come to rest for a long window. */
const rested: Readonly<Record<string, (keepMs: number) => Ledger>> = {
  "was given back": (keepMs) => {
    const ledger = Ledger.shared();
    for (const id of ["a", "b"]) ledger.say(id, { keepMs, restMs: keepMs });
    return ledger;
  },
  "was cut off": (keepMs) => {
    const ledger = Ledger.shared();
    ledger.say("a", { held: 60, want: 60, keepMs });
    ledger.now += LEASE_MS;
    ledger.say("c", {});
    return ledger;
  },
  "a lost record knew": (keepMs) => {
    const ledger = new Ledger();
    ledger.say("a", { keepMs, since: ledger.now - LEASE_MS });
    return ledger;
  },
};

for (const [title, rest] of Object.entries(rested)) {
  test(`what ${title} is fresh after the longest window that is left`, () => {
    const ledger = rest(100 * KEEP_MS);
    ledger.say("d", {});
    ledger.now += KEEP_MS + 2 * GAP_MS + STEP_MS;
    ledger.say("d", { want: 90, rests: 1 });
    assert.is(ledger.row("d")?.promised, 90);
  });
}

test("what is promised and not taken rests for no longer, also if windows differ a little", () => {
  const ledger = Ledger.shared();
  ledger.say("b", { held: 30, want: 30, leaseMs: 100 * LEASE_MS });
  ledger.say("a", { held: 0, want: 0 });
  for (let ms = 0; ms < KEEP_MS + STEP_MS; ms += GAP_MS) {
    const [id, keepMs] = ms % (2 * GAP_MS) === 0 ? ["a", KEEP_MS * 1.02] : ["c", KEEP_MS];
    for (const want of [60, 0]) ledger.say(id, { want, keepMs });
    ledger.now += GAP_MS;
  }
  ledger.say("c", { want: 60, rests: 1 });
  assert.is(ledger.row("c")?.promised, 60);
});

test("of groups without parts only the last one stays: it says for how long what is promised rests", () => {
  const ledger = Ledger.shared();
  ledger.say("a", { held: 0, want: 0, restMs: 1000 });
  ledger.say("b", { held: 0, want: 90, restMs: 3000 });
  ledger.say("c", {});
  const { resting } = readLedger(ledger.text ?? "");
  assert.equal(
    resting.map(({ parts }) => parts),
    [0],
  );
  assert.ok((resting[0]?.restMs ?? 0) >= 3000);
});

test("what rests longer makes nobody wait for it, whoever else gives parts back", () => {
  const ledger = Ledger.shared();
  ledger.say("a", { held: 0, want: 0, restMs: 1000 });
  ledger.say("b", { held: 0, want: 0, restMs: 3000 });
  ledger.say("c", { want: 0, restMs: KEEP_MS });
  ledger.now += 1000 + STEP_MS;
  ledger.say("c", { want: 90, rests: 1 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("c", { want: 90, rests: 1 }), { held: 60, fresh: 60 });
});

test("a member with another reserve, and so with a smaller pool, makes nothing fresh that rests", () => {
  const ledger = Ledger.shared();
  ledger.say("b", { held: 0, want: 0, restMs: 1000 });
  ledger.say("a", { held: 0, want: 0, restMs: KEEP_MS });
  ledger.say("c", { pool: 10 });
  ledger.now += 1000 + STEP_MS;
  ledger.say("b", { want: 90 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("b", { want: 90 }), { held: 90, fresh: 30 });
});

test("a member that comes back after its lease finds its parts resting once, and the others fresh", () => {
  const ledger = new Ledger();
  ledger.say("a", { want: 60 });
  ledger.now += GAP_MS;
  ledger.say("a", { want: 60 });
  ledger.now += LEASE_MS;
  ledger.say("a", { want: 90, rests: 1 });
  assert.is(ledger.row("a")?.promised, 30);
});

test("who wants nothing more gets neither what was handed nor what was promised to it, and leaves no row", () => {
  const ledger = new Ledger();
  ledger.say("a", { want: 60 });
  ledger.now += GAP_MS;
  assert.is(ledger.say("a", { want: 0 }).held, 0);
  ledger.say("b", { want: 90 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("b", { want: 90 }), { held: 90, fresh: 90 });
  ledger.say("a", { want: 60 });
  ledger.say("b", { held: 30, want: 30 });
  assert.is(ledger.say("a", { want: 0 }).held, 0);
  assert.is(ledger.row("a"), undefined);
});

test("a member with a short lease does not open a ledger that has forgotten what others hold for longer", () => {
  const ledger = Ledger.shared();
  ledger.say("c", { leaseMs: 10 * LEASE_MS, want: 1 });
  const closes = ledger.now + 10 * LEASE_MS;
  ledger.say("a", { held: 70, want: 70 });
  assert.is(readLedger(ledger.text ?? "").closed, closes);
  ledger.say("b", { held: 70, want: 70, leaseMs: 20 * LEASE_MS });
  ledger.say("a", { held: 80, want: 80 });
  assert.is(readLedger(ledger.text ?? "").closed, ledger.now + 20 * LEASE_MS);
});

test("a young ledger is closed: another one may have been lost", () => {
  const ledger = new Ledger();
  ledger.say("a", { want: 60, since: ledger.now - LEASE_MS / 2 });
  ledger.now += LEASE_MS / 2 - 1;
  assert.is(ledger.say("a", { want: 60 }).held, 0);
  ledger.now += 1;
  ledger.say("a", { want: 60 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("a", { want: 60 }), { held: 60, fresh: 0 });
});

test("a clock that jumps back does not keep a dead member's part for long", () => {
  const ledger = Ledger.shared();
  ledger.now -= 1000 * LEASE_MS;
  ledger.say("b", { held: 30, want: 90 });
  ledger.now += 2 * LEASE_MS;
  ledger.say("b", { held: 30, want: 90 });
  assert.is(ledger.row("a")?.held, 0);
});

test("nor does it keep the ledger closed for long", () => {
  const ledger = new Ledger();
  ledger.say("a", { want: 60, since: ledger.now + 1000 * LEASE_MS });
  ledger.now += 2 * LEASE_MS;
  ledger.say("a", { want: 60 });
  ledger.now += GAP_MS;
  assert.is(ledger.say("a", { want: 60 }).held, 60);
});

test("a member with a short lease does not end a long one", () => {
  const ledger = Ledger.shared();
  ledger.say("a", { held: 60, want: 60, leaseMs: 10 * LEASE_MS });
  ledger.now += 9 * LEASE_MS;
  ledger.say("b", { held: 0, want: 90 });
  assert.is(ledger.row("a")?.held, 60);
  ledger.now -= 1000 * LEASE_MS;
  ledger.say("b", { want: 90 });
  ledger.now += LEASE_MS - 1;
  ledger.say("b", { want: 90 });
  assert.is(ledger.row("a")?.held, 60);
  ledger.now += 1;
  ledger.say("b", { want: 90 });
  assert.is(ledger.row("a")?.held, 0);
});

test("a member that holds and wants nothing leaves no row", () => {
  const ledger = Ledger.shared();
  ledger.say("a", { held: 0, want: 0 });
  assert.is(ledger.row("a"), undefined);
});

test("what is no record is an error that shows it", () => {
  for (const text of ["", "nonsense", "1 2 3 4", "1 2 3 4 x\n", "1 2 3 4 5\na b 1 2\n"]) {
    assert.throws(() => readLedger(text), /the record of the regions is/);
  }
});

/** What no honest member says. */
const anyNumber = fc.oneof(
  fc.constantFrom(0, -0, -1, 0.5, NaN, Infinity, 1e9, 1e15, 2 ** 53, 1e21, 1e300),
  fc.maxSafeInteger(),
  fc.double(),
);
const anyMessage = fc
  .tuple(fc.constantFrom("a", "b", "c"), fc.array(anyNumber, { minLength: 14, maxLength: 21 }))
  .map(([id, numbers]) => [id, id, ...numbers.map(String)]);
const anyMessages = fc.array(anyMessage, { maxLength: 10 });

test("whatever a message says, the record can be read", () => {
  const property = fc.property(anyMessages, (messages) => {
    const ledger = Ledger.shared();
    for (const message of messages) {
      const { record, lifeMs } = exchange(ledger.text, message, ledger.now);
      ledger.text = record ?? ledger.text;
      assert.not.throws(() => readLedger(ledger.text ?? ""));
      assert.ok(Number.isSafeInteger(lifeMs));
      ledger.now += LEASE_MS / 10;
    }
  });
  fc.assert(property, { seed: progress.seed, numRuns: runs(4000) });
});

const said = fc.record({
  id: fc.constantFrom("a", "b", "c"),
  keeps: fc.constantFrom(0, 0.3, 1, 1, 1),
  fresh: fc.nat(40),
  want: fc.constantFrom(0, 10, 45, 90),
  ms: fc.constantFrom(0, 1, 50, 199, 200, 900, 1100),
  fault: fc.constantFrom(
    ...(["none", "none", "none", "none", "late", "forget", "new", "back"] as const),
  ),
});
const conversation = fc.array(said, { minLength: 5, maxLength: 40 });

test("whatever honest members say, they hold at most the pool", () => {
  const property = fc.property(conversation, (steps) => {
    const ledger = new Ledger();
    const held = new Map<string, { parts: number; until: number }>();
    for (const { id, keeps, fresh, want, ms } of steps) {
      const mine = held.get(id);
      const has = mine !== undefined && mine.until > ledger.now ? mine.parts : 0;
      const kept = Math.floor(has * keeps);
      const reply = ledger.say(id, { held: kept, fresh, want });
      held.set(id, { parts: reply.held, until: ledger.now + LEASE_MS * 0.9 });
      const live = [...held.values()].filter(({ until }) => until > ledger.now);
      const sum = live.reduce((total, { parts }) => total + parts, 0);
      assert.ok(sum <= POOL, `${sum} parts are held`);
      ledger.now += ms;
    }
  });
  fc.assert(property, { seed: progress.seed, numRuns: runs(4000) });
});

// -- claims, where parts rest ------------------------------------------------------------------

/** A and B hold 60 and 30 of a window, and A is cut off until its lease is over. */
function cutOff() {
  const ledger = Ledger.shared();
  const answered = ledger.row("a")?.number ?? 0;
  for (let ms = 0; ms < 2 * LEASE_MS; ms += GAP_MS) {
    ledger.now += GAP_MS;
    ledger.say("b", { held: 30, want: 90, rests: 1 });
  }
  const claim = (claim: number, said: Said = {}) =>
    ledger.say("a", { claim, answered, rests: 1, ...said }).held;
  return { ledger, claim };
}

test("a member has its parts again after its lease if it claims them, also where replies are lost", () => {
  const { ledger, claim } = cutOff();
  assert.is(ledger.row("b")?.held, 30);
  assert.is(claim(60), 60);
  assert.is(claim(60), 60);
  assert.equal([ledger.row("a")?.held, ledger.row("b")?.held], [60, 30]);
  // it holds them on a lease from then on
  assert.is(ledger.say("a", { held: 60, want: 60, rests: 1 }).held, 60);
});

test("a claim is for all that it had or for nothing, and what the ledger has beside it rests", () => {
  for (const [claimed, held] of [
    [61, 0],
    [40, 40],
  ] as const) {
    const { ledger, claim } = cutOff();
    assert.is(claim(claimed, { restMs: 1e9 }), held);
    ledger.say("b", { held: 30, want: 90, rests: 1 });
    ledger.now += GAP_MS;
    assert.is(ledger.say("b", { held: 30, want: 90, rests: 1 }).held, 30);
  }
});

test("nothing is claimed of a row that the ledger does not have, or has of an earlier time", () => {
  const { ledger, claim } = cutOff();
  assert.is(claim(60, { answered: 99 }), 0);
  assert.is(ledger.say("c", { claim: 60, answered: 1, rests: 1 }).held, 0);
  const late = cutOff();
  late.ledger.now += KEEP_MS + 2 * GAP_MS;
  assert.is(late.claim(60), 0);
});

test("a claim that meets no row, or one of an earlier time, shows that the ledger has forgotten something", () => {
  for (const answered of [99, 1]) {
    const { ledger } = cutOff();
    const id = answered === 99 ? "a" : "c";
    ledger.say(id, { claim: 60, answered, rests: 1 });
    const { closed, resting } = readLedger(ledger.text ?? "");
    assert.is(closed, ledger.now + LEASE_MS);
    assert.ok((resting.at(-1)?.restMs ?? 0) >= LEASE_MS + KEEP_MS);
    assert.is(ledger.row(id)?.held, 0);
  }
});

test("after a lease a member that wants parts shows it, too, also where parts do not rest", () => {
  const ledger = Ledger.shared();
  ledger.now += 2 * LEASE_MS;
  ledger.text = undefined;
  ledger.say("a", { want: 60 });
  assert.is(readLedger(ledger.text ?? "").closed, ledger.now + LEASE_MS);
});

test("what a lost reply has brought is brought again, as fresh as it was", () => {
  const ledger = new Ledger();
  ledger.say("a", { want: 60, rests: 1 });
  const answered = ledger.row("a")?.number ?? 0;
  ledger.now += GAP_MS;
  for (let lost = 0; lost < 3; lost++) {
    const said = { want: 60, rests: 1, answered };
    assert.equal(ledger.say("a", said), { held: 60, fresh: 60 });
    ledger.now += GAP_MS;
  }
  // it does not want it any more: others have it, fresh
  ledger.say("a", { want: 0, rests: 1, answered });
  ledger.say("b", { want: 90, rests: 1 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("b", { want: 90, rests: 1 }), { held: 90, fresh: 90 });
});

test("who has heard no reply for a lease is kept nothing for, and is given what it wants again once it hears", () => {
  for (const rests of [0, 1]) {
    const ledger = new Ledger();
    const deaf = { want: 90, demand: 90, rests, answered: 0, waitedMs: 0 };
    // nobody can say whether it has not heard of what is promised, or waits still
    for (; ledger.now < 1_000_000 + LEASE_MS; ledger.now += GAP_MS) {
      ledger.say("a", deaf);
      assert.is(ledger.say("b", { want: 90, rests }).held, 0);
    }
    let held = 0;
    for (let k = 0; k < 3; k++, ledger.now += GAP_MS) {
      ledger.say("a", deaf);
      held = ledger.say("b", { held, want: 90, rests }).held;
    }
    assert.is(held, 90);
    const { want, demand } = ledger.row("a") ?? {};
    assert.equal([want, demand], [0, 0]);
    ledger.say("a", { want: 90, demand: 90, rests });
    assert.equal([ledger.row("a")?.want, ledger.row("a")?.demand], [90, 90]);
  }
});

test("after an outage the first message of a member counts, although it does not answer the last one", () => {
  for (const rests of [0, 1]) {
    const ledger = new Ledger();
    ledger.say("a", { want: 90, demand: 90, rests });
    ledger.now += 2 * LEASE_MS;
    ledger.say("a", { want: 90, demand: 80, rests, answered: 0 });
    const { want, demand, promised } = ledger.row("a") ?? {};
    assert.equal([want, demand, promised], [90, 80, 90]);
  }
});

test("what a reply has brought that was lost before an outage is promised anew: the ledger may have gone back since", () => {
  const ledger = new Ledger();
  ledger.say("a", { want: 90, rests: 1 });
  ledger.now += GAP_MS;
  assert.is(ledger.say("a", { want: 90, rests: 1 }).held, 90);
  const answered = (ledger.row("a")?.number ?? 0) - 1;
  ledger.now += LEASE_MS + GAP_MS;
  assert.is(ledger.say("a", { want: 90, rests: 1, answered, waitedMs: 0 }).held, 0);
  assert.is(ledger.row("a")?.promised, 90);
});

test("who is deaf and sends few messages is kept nothing for, but once", () => {
  const ledger = new Ledger();
  ledger.say("a", { want: 90, demand: 90 });
  const promised = [1, 2, 3, 4].map(() => {
    ledger.now += 2 * LEASE_MS;
    ledger.say("a", { want: 90, demand: 90, answered: 0 });
    return ledger.row("a")?.promised;
  });
  assert.equal(promised, [90, 0, 0, 0]);
});

test("what was used up is kept for a member that is deaf for as long as for one that is away", () => {
  for (const [forMs, held] of [
    [KEEP_MS / 2, 60],
    [KEEP_MS + 2 * GAP_MS, 0],
  ] as const) {
    const { ledger, claim } = cutOff();
    const answered = ledger.row("a")?.number ?? 0;
    claim(60, { answered });
    const endMs = ledger.now + LEASE_MS + forMs;
    for (; ledger.now <= endMs; ledger.now += GAP_MS) claim(60, { answered });
    assert.is(claim(60, { answered }), held);
  }
});

test("what was released is said until a reply comes, and counts once, whether the messages or their replies were lost", () => {
  const POOL_OF_A = 60;
  for (const comes of [
    [false, false],
    [true, false],
    [false, true],
    [true, true],
  ]) {
    const ledger = Ledger.shared();
    const { number: answered = 0 } = ledger.row("a") ?? {};
    const first = { number: answered + 1, parts: 20, restMs: 0 };
    const second = { number: answered + 2, parts: 10, restMs: KEEP_MS / 2 };
    const all = { answered, keepMs: KEEP_MS, rests: 1, waitedMs: 0 };
    const say = (number: number, held: number, released: LedgerMessage["released"]) =>
      ledger.say("a", { ...all, number, held, want: held, released });
    if (comes[0]) say(answered + 1, POOL_OF_A - 20, [first]);
    if (comes[1]) say(answered + 2, POOL_OF_A - 30, [first, second]);
    say(answered + 3, POOL_OF_A - 30, [first, second]);
    const { resting } = readLedger(ledger.text ?? "");
    assert.equal(
      resting.map(({ parts }) => parts),
      [10],
    );
    assert.ok((resting[0]?.restMs ?? 0) <= (17 / 32) * KEEP_MS);
    // what is fresh is free
    ledger.say("c", { want: 90, rests: 1 });
    assert.is(ledger.row("c")?.promised, 20);
  }
});

test("what is said again is not free a second time, after a late message has brought the row back that it emptied", () => {
  const ledger = Ledger.shared();
  const answered = ledger.row("a")?.number ?? 0;
  const all = { answered, rests: 1, waitedMs: 0 };
  const released = [{ number: answered + 2, parts: 60, restMs: 0 }];
  // b has used what it gives back
  ledger.say("b", { rests: 1 });
  const usedMs = ledger.now;
  ledger.say("c", { want: 60, rests: 1 });
  // this comes before the message that a has sent before it; its reply is lost
  ledger.say("a", { ...all, number: answered + 2, released });
  ledger.now += GAP_MS;
  ledger.say("c", { want: 60, rests: 1 });
  ledger.say("a", { ...all, number: answered + 1, held: 60, want: 60, released: [] });
  ledger.now += GAP_MS;
  ledger.say("a", { ...all, number: answered + 3, released });
  const { closed, resting } = readLedger(ledger.text ?? "");
  assert.ok(closed > ledger.now);
  assert.ok(ledger.now + (resting.at(-1)?.restMs ?? 0) >= usedMs + KEEP_MS);
  assert.ok(resting.reduce((sum, { parts }) => sum + parts, 0) >= 30);
});

test("what a deaf member has had rests from the end of its lease, like that of a dead one", () => {
  const { ledger, claim } = cutOff();
  const answered = ledger.row("a")?.number ?? 0;
  const heardMs = ledger.now;
  for (; ledger.now <= heardMs + LEASE_MS + KEEP_MS + GAP_MS; ledger.now += GAP_MS)
    claim(60, { answered, released: [] });
  const { resting } = readLedger(ledger.text ?? "");
  assert.is(ledger.row("a")?.held, 0);
  assert.ok((resting.at(-1)?.restMs ?? 0) <= 4 * GAP_MS, `${resting.at(-1)?.restMs}`);
});

test("a member that has heard one reply, used what it brought, and begins anew after a cut was not deaf meanwhile", () => {
  const { ledger, claim } = cutOff();
  const answered = ledger.row("a")?.number ?? 0;
  for (let ms = 0; ms < KEEP_MS / 2; ms += GAP_MS) {
    claim(60, { answered });
    ledger.now += GAP_MS;
  }
  // it hears this one
  assert.is(claim(60, { answered }), 60);
  const usedMs = ledger.now + LEASE_MS;
  ledger.now += LEASE_MS + KEEP_MS / 2;
  ledger.say("a", { answered: 0, want: 90, rests: 1, released: [] });
  const { resting } = readLedger(ledger.text ?? "");
  assert.ok(ledger.now + (resting.at(-1)?.restMs ?? 0) >= usedMs + KEEP_MS);
});

test("what a member that begins anew has released is fresh when it says, and not handed on", () => {
  const { ledger } = cutOff();
  const number = (ledger.row("a")?.number ?? 0) + 1;
  const released = [{ number, parts: 50, restMs: 0 }];
  ledger.say("a", { answered: 0, want: 90, rests: 1, released });
  const { held, promised, promisedFresh } = ledger.row("a") ?? {};
  assert.equal([held, promised, promisedFresh], [0, 50, 50]);
  assert.is(ledger.row("b")?.gift, 0);
  // of the other ten it says nothing
  const { resting } = readLedger(ledger.text ?? "");
  assert.is(resting.at(-1)?.parts, 10);
  assert.ok((resting.at(-1)?.restMs ?? 0) >= KEEP_MS);
});

test("what rests for a second does so beside what rests for a day", () => {
  const ledger = Ledger.shared();
  const keepMs = 1000 * KEEP_MS;
  const number = (ledger.row("a")?.number ?? 0) + 1;
  const released = [
    { number, parts: 45, restMs: KEEP_MS },
    { number, parts: 10, restMs: keepMs / 2 },
  ];
  // of five it says nothing: they rest as long as any may
  ledger.say("a", { released, keepMs, rests: 1 });
  const { resting } = readLedger(ledger.text ?? "");
  assert.equal(
    resting.map(({ parts }) => parts),
    [45, 10, 5],
  );
  assert.ok((resting[0]?.restMs ?? 0) <= (17 / 16) * KEEP_MS);
});

test("what a dead member had not got is free at once, and as fresh as it was", () => {
  const ledger = new Ledger();
  ledger.say("a", { want: 60, rests: 1 });
  ledger.now += 2 * LEASE_MS;
  ledger.say("b", { want: 90, rests: 1 });
  ledger.now += GAP_MS;
  assert.equal(ledger.say("b", { want: 90, rests: 1 }), { held: 90, fresh: 90 });
});

test("nothing is claimed that others turn out to hold, or of a ledger that has begun anew since", () => {
  const { ledger, claim } = cutOff();
  ledger.say("b", { held: 60, want: 60, rests: 1 });
  assert.is(claim(60), 0);
  const young = cutOff();
  assert.is(young.claim(60, { since: young.ledger.now }), 0);
});

test("where parts do not rest, others have them after the lease, and nothing is claimed", () => {
  const { ledger, claim } = cutOff();
  ledger.say("b", { held: 30, want: 90, rests: 0 });
  ledger.now += GAP_MS;
  assert.is(ledger.say("b", { held: 30, want: 90, rests: 0 }).held, 90);
  assert.is(claim(60), 0);
});

test("nothing is claimed while the ledger is closed: the row may have been made anew by a message of before", () => {
  const { ledger, claim } = cutOff();
  // others had it meanwhile
  for (let i = 0; i < 2; i++) {
    ledger.say("c", { want: 60, rests: 0 });
    ledger.now += GAP_MS;
  }
  ledger.say("c", { rests: 0 });
  ledger.say("a", { held: 60, answered: 1, rests: 1 });
  assert.is(claim(60), 0);
});

test("more than the pool is never handed on, whatever the ledger had forgotten", () => {
  const { ledger, claim } = cutOff();
  // what A gave to B is forgotten, and A does not know whether it has
  ledger.say("b", { held: 89, want: 89, rests: 1 });
  for (let ms = 0; ms <= LEASE_MS; ms += GAP_MS) {
    ledger.now += GAP_MS;
    ledger.say("b", { held: 89, want: 89, rests: 1 });
    ledger.say("c", { want: 60, rests: 1 });
  }
  claim(1);
  assert.is(ledger.say("c", { want: 60, rests: 1 }).held, 0);
});

test("what a row of long ago says is in nobody's way once the ledger has opened again", () => {
  const { ledger } = cutOff();
  ledger.say("b", { held: 60, want: 90, rests: 1 });
  for (let ms = 0; ms <= LEASE_MS + KEEP_MS / 2; ms += GAP_MS) {
    ledger.now += GAP_MS;
    ledger.say("b", { held: 60, want: 60, rests: 1 });
  }
  ledger.say("c", { want: 60, rests: 1 });
  ledger.say("b", { held: 0, fresh: 60, rests: 1 });
  assert.is(ledger.say("c", { want: 60, rests: 1 }).held, 60);
});

test("a dead member with longer windows keeps no part for longer than those who live need it", () => {
  const ledger = new Ledger();
  const long = { rests: 1, keepMs: 100 * KEEP_MS };
  ledger.say("a", { want: 60, ...long });
  ledger.say("b", { want: 30, rests: 1 });
  ledger.now += GAP_MS;
  assert.is(ledger.say("a", { want: 60, ...long }).held, 60);
  assert.is(ledger.say("b", { want: 30, rests: 1 }).held, 30);
  let held = 30;
  for (let ms = 0; ms <= LEASE_MS + KEEP_MS + 4 * GAP_MS; ms += GAP_MS) {
    ledger.now += GAP_MS;
    held = ledger.say("b", { held, want: 90, rests: 1 }).held;
  }
  assert.is(held, 90);
});

test("a dead member that had no part leaves nothing that rests", () => {
  const ledger = Ledger.shared();
  ledger.say("c", { want: 90 });
  ledger.now += LEASE_MS / 2;
  ledger.say("a", { held: 60, want: 60 });
  ledger.say("b", { held: 30, want: 30 });
  ledger.now += LEASE_MS / 2;
  ledger.say("a", { held: 60, want: 60 });
  assert.equal(readLedger(ledger.text ?? "").resting, []);
});

test("of dead members the last 64 have rows", () => {
  const ledger = new Ledger();
  const ids = Array.from({ length: 70 }, (_, i) => `m${i}`);
  for (const id of ids) ledger.say(id, { want: 1, rests: 1 });
  ledger.now += GAP_MS;
  for (const id of ids) assert.is(ledger.say(id, { want: 1, rests: 1 }).held, 1);
  ledger.now += 2 * LEASE_MS;
  ledger.say("b", { rests: 1 });
  const kept = ids.filter((id) => ledger.row(id) !== undefined);
  assert.equal(kept, ids.slice(6));
  // that the others have none is no sign that the ledger has forgotten something
  const { closed } = readLedger(ledger.text ?? "");
  for (const id of ids) ledger.say(id, { claim: 1, rests: 1 });
  assert.is(readLedger(ledger.text ?? "").closed, closed);
  assert.equal(ids.map((id) => ledger.row(id)?.held ?? 0).filter(Boolean).length, 64);
});

test("whatever honest members say and claim, they hold at most the pool", () => {
  const property = fc.property(conversation, (steps) => {
    const ledger = new Ledger();
    const held = new Map<string, { parts: number; until: number; number: number }>();
    for (const { id, keeps, fresh, want, ms } of steps) {
      const mine = held.get(id);
      const isOver = mine !== undefined && mine.until <= ledger.now;
      const kept = isOver ? 0 : Math.floor((mine?.parts ?? 0) * keeps);
      const reply =
        isOver && mine.parts > 0
          ? ledger.say(id, { claim: mine.parts, answered: mine.number, rests: 1 })
          : ledger.say(id, { held: kept, fresh, want, rests: 1 });
      const number = ledger.row(id)?.number ?? 0;
      // some replies are lost
      const isHeard = fresh % 3 > 0;
      if (isHeard) held.set(id, { parts: reply.held, until: ledger.now + LEASE_MS * 0.9, number });
      else if (mine !== undefined && !isOver) held.set(id, { ...mine, parts: kept });
      const live = [...held.values()].filter(({ until }) => until > ledger.now);
      const sum = live.reduce((total, { parts }) => total + parts, 0);
      assert.ok(sum <= POOL, `${sum} parts are held`);
      ledger.now += 2 * ms;
    }
  });
  fc.assert(property, { seed: progress.seed, numRuns: runs(4000) });
});

test.run();

const twins = suite("ledger, the Lua twin");

/** Sends a message to both twins. @returns the record that both have written */
async function tellBoth(
  redis: Redis,
  key: string,
  text: string | undefined,
  message: readonly string[],
  now: number,
): Promise<string | undefined> {
  const { reply, record, lifeMs } = exchange(text, message, now);
  const time = `{${Math.floor(now / 1000)}, ${(now % 1000) * 1000}}`;
  const lua = ledgerScript.one.lua
    .replace('redis.call("TIME")', time)
    .replace('redis.call("SET",', 'redis.call("RPUSH", "written",');
  assert.is(await redis.eval(lua, 1, key, ...message, "", "0"), reply);
  const written = await redis.lrange("written", 0, -1);
  await redis.del("written");
  assert.equal(written, record === undefined ? [] : [key, record, "PX", String(lifeMs)]);
  if (record !== undefined) await redis.set(key, record);
  return record ?? text;
}

twins("answers and writes the same to the last byte", async () => {
  const redis = new Redis(await freshUrl());
  const key = "ledger-twin";
  try {
    const property = fc.asyncProperty(conversation, async (steps) => {
      await redis.del(key);
      let text: string | undefined;
      let now = 1_750_000_000_123;
      let number = 0;
      for (const { id, keeps, fresh, want, ms, fault } of steps) {
        const row =
          text === undefined ? undefined : readLedger(text).rows.find((one) => one.id === id);
        number += fault === "late" ? -1 : 1;
        const message = writeMessage({
          id,
          region: `${id}%20`,
          number: Math.max(1, number),
          answered: (row?.number ?? 0) + (fault === "forget" ? 1 : 0),
          since: fault === "new" ? now : OLD,
          sent: ms === 900 ? now - ms - want * 3 : 0,
          held: Math.floor((row?.held ?? 0) * keeps),
          claim: keeps === 0 ? (row?.held ?? 0) : 0,
          want,
          demand: want,
          waitedMs: ms,
          leaseMs: ms === 50 ? 20 * LEASE_MS : LEASE_MS,
          gapMs: GAP_MS,
          keepMs: want === 45 ? KEEP_MS : KEEP_MS * 3,
          pool: POOL,
          rests: ms === 50 || ms === 200 ? 1 : 0,
          released: [0, 7, 30].slice(want % 3).map((times, i) => {
            return { number: number - i, parts: fresh, restMs: ms * times };
          }),
        });
        text = await tellBoth(redis, key, text, message, now);
        now += fault === "back" ? -10 * LEASE_MS : ms;
      }
    });
    await fc.assert(property, { seed: progress.seed, numRuns: runs(400, 40) });
  } finally {
    redis.disconnect();
  }
});

twins("so it does whatever a message says", async () => {
  const redis = new Redis(await freshUrl());
  const key = "ledger-twin";
  try {
    const property = fc.asyncProperty(anyMessages, async (messages) => {
      await redis.del(key);
      let text: string | undefined;
      let now = 1_750_000_000_123;
      for (const message of messages) {
        text = await tellBoth(redis, key, text, message, now);
        now += LEASE_MS / 10;
      }
    });
    await fc.assert(property, { seed: progress.seed, numRuns: runs(400, 40) });
  } finally {
    redis.disconnect();
  }
});

twins("neither twin reads the record of another version as if it were its own", async () => {
  const redis = new Redis(await freshUrl());
  const key = "ledger-of-another-version";
  const message = writeMessage({
    ...{
      id: "a",
      region: "a",
      number: 1,
      answered: 0,
      since: OLD,
      sent: 0,
      held: 0,
      claim: 0,
    },
    ...{
      want: 90,
      demand: 90,
      waitedMs: 0,
      leaseMs: 1e9,
      gapMs: 0,
      keepMs: 0,
      pool: POOL,
      rests: 0,
      released: [],
    },
  });
  const { record = "" } = exchange(undefined, message, 1);
  try {
    for (const text of [
      "",
      "nonsense",
      "1 2 3 4 5",
      `7 ${record}`,
      record.replace(/\n$/, " 7\n"),
      record.replace(/\n$/, ""),
      record.replace("\n", "\n\n"),
      record.replace(" ", "  "),
      record.replace("a a 1 ", "a a  "),
      record.replace("a a 1 ", "a a 0x1 "),
      record.replace("a a 1 ", "a a 1e0 "),
      record.replace("a a 1 ", "a a 1.5 "),
      record.replace("a a 1 ", `a a ${2 ** 53} `),
      `${record}a b 1\n`,
    ]) {
      assert.throws(() => exchange(text, message, 1), /the record of the regions is/);
      await redis.set(key, text);
      const answer = redis.eval(ledgerScript.one.lua, 1, key, ...message, "", "0");
      const error = await answer.catch((cause) => cause);
      assert.match(String(error), /ledger-of-another-version holds a value that no limiter/);
      assert.is(await redis.get(key), text);
    }
  } finally {
    redis.disconnect();
  }
});

twins.run();
