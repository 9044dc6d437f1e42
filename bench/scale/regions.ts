/**
 * `smooth-limiter/regions`: members hold parts of the limit on leases, and exchange messages with a ledger.
 *
 * The ledger is the real one, `exchange`, and so are the division, `divide`, and the estimate of demand, `Demand`. A member's pace is that of
 * `src/regions/member.ts`, written again without timers and limiters; a part's permits are a fluid, moved by the formula
 * in `src/regions/move.ts`. Messages take as long as the trip, and are lost when a member is cut off.
 *
 * A ledger has a row for each member, and each message carries all rows. So many processes are divided among several
 * limits, each with its part of the numbers and with one process of each region.
 */
import { Demand, FIRST } from "../../src/regions/demand.ts";
import { divide } from "../../src/regions/division.ts";
import { exchange, WHOLE } from "../../src/stores/ledger.ts";
import { type LedgerRecord, readLedger, writeMessage } from "../../src/stores/ledger-text.ts";
import { Bucket, type MakeWay, type Way } from "./way.ts";
import { randomFrom, STEP_MS, type World } from "./world.ts";

const EVERY_MS = 1000;
const RESERVE = 0.1;
/** As in `src/regions/member.ts`, which explains them. */
const DRIFT = 1.1;
const SOON = 1 / 3;
const MOST_SOON = 6;
const IDLE_INTERVALS = 3;
const URGENT = 0.1;

/** All regions have the same weight. */
const EQUAL = new Map<string, number>();

const random = randomFrom(1);

export interface Division {
  /** How many limits the processes are divided among; default 1. */
  readonly limits: number;
  /** Whether regions have a store, so that several processes of one may share a limit; default: no. */
  readonly local: boolean;
  /** As the option; default 5000. */
  readonly leaseMs: number;
}

export function regions(division: Partial<Division>): MakeWay {
  return (world) =>
    new Regions(world, { limits: 1, local: false, leaseMs: 5 * EVERY_MS, ...division });
}

/** A message on its way to the ledger, or the reply on its way back. */
interface Letter {
  readonly process: number;
  readonly number: number;
  readonly sentMs: number;
  readonly freed: number;
  readonly message: readonly string[];
  reply: string | undefined;
}

class Ledger {
  text: string | undefined;
  /** What all members hold must not be more than the pool. */
  readonly pool: number;

  constructor(pool: number) {
    this.pool = pool;
  }
}

class Regions implements Way {
  readonly callWaits: string;
  homeCalls = 0;
  nearCalls = 0;
  readonly #world: World;
  readonly #members: readonly Member[];
  /** The reserves in the regions' stores, by limit and region. */
  readonly #reserves: readonly Bucket[];
  readonly #perLimit: number;
  /** Letters by the step in which they arrive. */
  readonly #post = new Map<number, Letter[]>();

  constructor(world: World, { limits, local, leaseMs }: Division) {
    const { processes, regions: regionCount } = world.size;
    this.#world = world;
    this.#perLimit = processes / limits;
    this.callWaits = local ? "0; 1 ms for the reserve" : "0";
    // without a store each process is a region of its own
    const names = local ? regionCount : this.#perLimit;
    const reserved = Math.floor((RESERVE / names) * WHOLE);
    const pool = WHOLE - reserved * names;
    const ledgers = Array.from({ length: limits }, () => new Ledger(pool));
    const whole = { rate: world.rate / limits, capacity: world.capacity / limits };
    this.#members = Array.from({ length: processes }, (_, i) => {
      const place = i % this.#perLimit;
      return new Member({
        ledger: ledgers[Math.floor(i / this.#perLimit)] as Ledger,
        region: `${local ? place % regionCount : place}`,
        id: `${place}`,
        base: local ? 0 : reserved,
        reserved,
        leaseMs,
        ...whole,
      });
    });
    this.#reserves = Array.from(
      { length: local ? limits * regionCount : 0 },
      () =>
        new Bucket((whole.rate * RESERVE) / regionCount, (whole.capacity * RESERVE) / regionCount),
    );
  }

  step(nowMs: number, wanted: Float64Array): number {
    this.#deliver(nowMs);
    for (const reserve of this.#reserves) reserve.fill(STEP_MS);
    let granted = 0;
    for (const [i, member] of this.#members.entries()) {
      if (member.isDue(nowMs)) this.#wake(member, i, nowMs);
      const permits = wanted[i] ?? 0;
      let lacking = permits - member.grant(nowMs, permits);
      if (lacking > 0 && this.#reserves.length > 0) {
        this.nearCalls += Math.min(lacking, STEP_MS);
        lacking -= this.#reserveOf(i).draw(lacking);
      }
      if (lacking > 0) member.lack(nowMs);
      granted += permits - lacking;
    }
    return granted;
  }

  #reserveOf(process: number): Bucket {
    const { regions: count } = this.#world.size;
    const limit = Math.floor(process / this.#perLimit);
    return this.#reserves[limit * count + this.#world.regionOf(process)] as Bucket;
  }

  #wake(member: Member, process: number, nowMs: number): void {
    const message = member.wake(nowMs);
    if (message === undefined) return;
    this.homeCalls += 1;
    const { number, freed } = member;
    this.#travel({ process, number, sentMs: nowMs, freed, message, reply: undefined }, nowMs);
  }

  #travel(letter: Letter, nowMs: number): void {
    const tripMs = this.#world.roundTripMs(this.#world.regionOf(letter.process)) / 2;
    const step = Math.ceil((nowMs + tripMs) / STEP_MS);
    const letters = this.#post.get(step);
    if (letters === undefined) this.#post.set(step, [letter]);
    else letters.push(letter);
  }

  #deliver(nowMs: number): void {
    const step = Math.round(nowMs / STEP_MS);
    const letters = this.#post.get(step) ?? [];
    this.#post.delete(step);
    for (const letter of letters) {
      const { process, message } = letter;
      const member = this.#members[process] as Member;
      if (!this.#world.reachesHome(this.#world.regionOf(process), nowMs)) continue;
      if (letter.reply !== undefined) {
        member.replied(letter.reply, letter, nowMs);
        continue;
      }
      // the store's clock shows Unix time, which is never near 0
      const { reply, record } = exchange(member.ledger.text, message, 1e12 + nowMs);
      if (record !== undefined) member.ledger.text = record;
      letter.reply = reply;
      this.#travel(letter, nowMs);
    }
  }
}

interface MemberOptions {
  readonly ledger: Ledger;
  readonly region: string;
  readonly id: string;
  /** What the member has without a lease, and up to which demand it needs none, in `WHOLE`. */
  readonly base: number;
  readonly reserved: number;
  readonly leaseMs: number;
  /** Of the whole limit. */
  readonly rate: number;
  readonly capacity: number;
}

/** A member and its part, as in `src/regions/member.ts`. */
class Member {
  readonly ledger: Ledger;
  number = 0;
  freed = 0;
  readonly #options: MemberOptions;
  readonly #bucket: Bucket;
  #held = 0;
  #lapseMs = Infinity;
  #want = 0;
  #isTold = false;
  #answered = 0;
  #rowMs = 0;
  #promised = 0;
  #promisedMs: number | undefined;
  #rows: LedgerRecord["rows"] = [];
  readonly #demand = new Demand(EVERY_MS, 0);
  #nextMs = Infinity;
  #soon = 0;
  #idle = 0;

  constructor(options: MemberOptions) {
    const { base, rate, capacity } = options;
    this.ledger = options.ledger;
    this.#options = options;
    const part = base / WHOLE;
    this.#bucket = new Bucket(rate * part, capacity * part);
  }

  /** Returns how many of the permits the member grants in the step from `nowMs` on. */
  grant(nowMs: number, wanted: number): number {
    if (nowMs >= this.#lapseMs) this.#lapse();
    const { rate, capacity } = this.#options;
    if (wanted > 0) this.#demand.asked(wanted / rate, 1 / capacity, wanted);
    this.#bucket.fill(STEP_MS);
    return this.#bucket.draw(wanted);
  }

  /** A call was refused. */
  lack(nowMs: number): void {
    if (this.#nextMs < Infinity) return;
    this.#demand.begin(nowMs);
    this.#nextMs = nowMs + EVERY_MS * FIRST;
    this.#idle = 0;
  }

  isDue(nowMs: number): boolean {
    return this.#nextMs <= nowMs || this.#lapseMs <= nowMs;
  }

  /** Returns the message to send, if any. */
  wake(nowMs: number): readonly string[] | undefined {
    if (this.#lapseMs <= nowMs) this.#lapse();
    if (this.#nextMs > nowMs) return undefined;
    return this.#round(nowMs);
  }

  #round(nowMs: number): readonly string[] | undefined {
    const { region, id, base, leaseMs, reserved } = this.#options;
    if (this.#demand.measure(nowMs, 1)) this.#soon = 0;
    const sharers = this.#rows.filter((row) => row.region === region).length;
    this.#idle = this.#demand.value > reserved / Math.max(1, sharers) ? 0 : this.#idle + 1;
    if (this.#idle >= IDLE_INTERVALS) {
      if (this.#held === 0 && this.#want === 0 && this.#isTold) {
        this.#cool();
        return undefined;
      }
      this.#want = 0;
      this.#change(0, 0);
    } else {
      this.#want = Math.max(this.#held, this.#divide().target);
    }
    // if no reply comes
    this.#nextMs = nowMs + Math.min(2 * EVERY_MS, leaseMs / 2);
    this.number += 1;
    this.#isTold = this.#held + this.#want === 0;
    const keepMs = Math.ceil(this.#options.capacity / this.#options.rate);
    return writeMessage({
      id,
      region,
      number: this.number,
      answered: nowMs < this.#rowMs + leaseMs ? this.#answered : 0,
      since: 1,
      sent: 0,
      waitedMs: this.#waitedMs(nowMs),
      held: this.#held,
      claim: 0,
      want: this.#want,
      demand: Math.max(0, this.#demand.value - base),
      leaseMs: Math.ceil(leaseMs * DRIFT),
      gapMs: EVERY_MS,
      keepMs,
      pool: this.ledger.pool,
      rests: 0,
      released: [
        { number: this.number, parts: this.freed, restMs: 0 },
        { number: this.number, parts: this.ledger.pool, restMs: keepMs },
      ],
    });
  }

  replied(reply: string, { number, freed, sentMs }: Letter, nowMs: number): void {
    if (number !== this.number) return;
    const { leaseMs } = this.#options;
    this.freed = Math.max(0, this.freed - freed);
    const halfMs = Math.max(nowMs, sentMs + EVERY_MS / 2);
    this.#nextMs = halfMs + EVERY_MS * (0.4 + random() / 20);
    if (reply === "late" || sentMs + leaseMs <= nowMs) return;
    const end = reply.indexOf("\n");
    const [held = 0, fresh = 0] = reply.slice(0, end).split(" ").map(Number);
    const record = readLedger(reply.slice(end + 1));
    this.#rows = record.rows.filter(({ lapse }) => lapse > record.last);
    const { number: answered = 0, promised = 0 } =
      record.rows.find(({ id }) => id === this.#options.id) ?? {};
    this.#answered = answered;
    this.#rowMs = sentMs;
    const wasDue = this.#waitedMs(sentMs) >= EVERY_MS;
    if (promised === 0) this.#promisedMs = undefined;
    else if (wasDue || promised > this.#promised) this.#promisedMs = sentMs;
    this.#promised = promised;
    this.#lapseMs = held > 0 ? sentMs + leaseMs : Infinity;
    this.#change(held, fresh);
    const { target, excess } = this.#divide();
    const isUrgent = (size: number) => size > this.#held * URGENT + 1;
    if (excess > 0) {
      if (isUrgent(excess)) this.#soon = 1;
      this.#want = Math.max(0, this.#held - excess);
      this.#change(this.#want, 0);
      this.#nextMs = nowMs;
    } else if (this.#idle > 0 || (this.#soon === 0 && !isUrgent(target - this.#held))) {
      this.#soon = 0;
    } else if (this.#soon < MOST_SOON) {
      this.#soon += 1;
      this.#nextMs = sentMs + EVERY_MS * SOON;
    } else if (!isUrgent(target - this.#held)) {
      this.#soon = 0;
    }
    if (this.#promisedMs === undefined) return;
    const dueMs = Math.max(this.#promisedMs + EVERY_MS, sentMs + EVERY_MS * SOON);
    this.#nextMs = Math.min(this.#nextMs, dueMs);
  }

  #waitedMs(nowMs: number): number {
    return this.#promisedMs === undefined ? 0 : nowMs - this.#promisedMs;
  }

  #cool(): void {
    this.#nextMs = Infinity;
    this.#soon = 0;
    this.#promised = 0;
    this.#promisedMs = undefined;
    this.#answered = 0;
    this.#rows = [];
  }

  #lapse(): void {
    this.#lapseMs = Infinity;
    this.#change(0, 0);
    this.freed = 0;
  }

  /** Holds `held` pieces from now on. @param fresh how many of those that come are fresh */
  #change(held: number, fresh: number): void {
    const { base, rate, capacity } = this.#options;
    const from = (base + this.#held) / WHOLE;
    const to = (base + held) / WHOLE;
    this.#held = held;
    const { level } = this.#bucket;
    this.#bucket.rate = rate * to;
    this.#bucket.capacity = capacity * to;
    if (to >= from) {
      this.#bucket.level = level + Math.min(fresh / WHOLE, to - from) * capacity;
      return;
    }
    const freed = Math.min(from - to, Math.max(0, level / capacity));
    this.#bucket.level = Math.min(level - freed * capacity, capacity * to);
    this.freed += Math.floor(freed * WHOLE);
  }

  #divide(): { readonly target: number; readonly excess: number } {
    const { id, region, base } = this.#options;
    const me = { id, region, demand: Math.max(0, this.#demand.value - base) };
    return divide(this.#rows, me, this.ledger.pool, EQUAL);
  }
}
