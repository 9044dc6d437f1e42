/**
 * The states of many keys under the same policies.
 *
 * A key costs its name, its place in a map and the algorithm's state. What no longer matters (a new
 * state would do) is dropped without timers and without pauses: each new key looks at two others on
 * its way round the map, and so does every sixteenth call at one. The map so holds at most about
 * twice what matters; when nobody calls, nothing is dropped.
 *
 * A full table evicts the key that has used least, so that a client which invents keys pushes out
 * its own. A search meets some keys on the way round, and goes on (up to a bound) while the best
 * candidate has used more than the new key; what it meets is remembered, and so is the new key. In a
 * table of up to 64 keys the choice is exact. In a larger one a key goes that has used no more than
 * the new one, if a search has met such a key.
 *
 * New numbers and another origin of time hold for all keys at once, but each state is brought up to
 * them when it is next touched, or by those who go round.
 *
 * Times are microseconds on the holder's scale.
 */
import { LeastUsed, type UsedKey } from "./least-used.ts";
import { type Cell, cellOn, freshState, openCell, type PolicyList } from "./memory.ts";
import { Round } from "./round.ts";

/** How many a new key looks at on its way, and how many where there is no room. */
const LOOKS = 2;
const LOOKS_FOR_ROOM = 16;
/** How long the search for room is at the most: for a key without a past, or for a light one. */
const MOST_LOOKS = { refuse: 64, evict: 1024 } as const;
/** In tables up to this size all keys are looked at before one is evicted. */
const SMALL = 64;
/** Every so many calls one more is looked at. */
const CALLS_A_LOOK = 16;

/** States that are as they were before a change, and what it does to each. */
interface Older {
  readonly states: Map<string, unknown>;
  readonly round: Round<unknown>;
  carry(state: unknown): void;
}

export class KeyStates {
  readonly #maxKeys: number;
  readonly #whenFull: "evict" | "refuse";
  /** Whether the state of that key is in use and must stay. */
  readonly #isInUse: (key: string) => boolean;
  #policies: PolicyList;
  /** Lends itself to one state after the other. */
  #cell: Cell;
  #states = new Map<string, unknown>();
  #round = new Round(this.#states);
  readonly #leastUsed = new LeastUsed();
  #older: Older | undefined;
  #calls = 0;

  constructor(
    policies: PolicyList,
    maxKeys: number,
    whenFull: "evict" | "refuse",
    isInUse: (key: string) => boolean,
  ) {
    this.#policies = policies;
    this.#maxKeys = maxKeys;
    this.#whenFull = whenFull;
    this.#isInUse = isInUse;
    this.#cell = openCell(policies, 0, 0);
  }

  get size(): number {
    return this.#states.size + (this.#older?.states.size ?? 0);
  }

  get policies(): PolicyList {
    return this.#policies;
  }

  /** Knows the policies; what state it is on changes with every question to this object. */
  get cell(): Cell {
    return this.#cell;
  }

  /** The cell of a key, on its own state or on a new one that nobody keeps yet. */
  cellOf(state: unknown, now: number, epoch: number): Cell {
    this.#cell.state = state ?? freshState(this.#policies, now, epoch);
    return this.#cell;
  }

  /**
   * How much of its limits the key uses whose state the cell is on: permits under one policy, the
   * largest share of a limit under several. To be compared with that of other keys.
   */
  usage(now: number): number {
    const owed = this.#cell.owed(now);
    if (owed.length === 1) return owed[0] as number;
    return Math.max(...this.#cell.quotas(now).map(({ limit }, i) => (owed[i] as number) / limit));
  }

  #usageIn(state: unknown, now: number): number {
    this.#cell.state = state;
    return this.usage(now);
  }

  find(key: string): unknown {
    const state = this.#states.get(key);
    return state === undefined && this.#older !== undefined ? this.#bring(key, this.#older) : state;
  }

  /** Something was asked for. */
  tend(now: number): void {
    this.#calls += 1;
    if (this.#calls % CALLS_A_LOOK === 0) this.#look(now);
  }

  /**
   * Keeps the state of a key that is new, unless there is no room.
   *
   * @param used by the new key, what it is about to take included
   */
  admit(key: string, state: unknown, used: number, now: number): boolean {
    for (let i = 0; i < LOOKS; i++) this.#look(now);
    if (this.size >= this.#maxKeys && !this.#makeRoom(key, used, now)) return false;
    this.#states.set(key, state);
    this.#cell.state = state;
    return true;
  }

  forget(key: string): boolean {
    this.#leastUsed.delete(key);
    const older = this.#older?.states.delete(key) ?? false;
    return this.#states.delete(key) || older;
  }

  /**
   * From `now` on these are the policies.
   *
   * @param done keys whose states have the new numbers already
   */
  resize(policies: PolicyList, now: number, epoch: number, done: Iterable<string>): void {
    const before = this.#policies;
    this.#age((state) => cellOn(before, state).resize(now, policies.list, epoch));
    this.#policies = policies;
    this.#cell = openCell(policies, now, epoch);
    this.#leastUsed.clear();
    for (const key of done) {
      this.#states.set(key, this.#older?.states.get(key));
      this.#older?.states.delete(key);
    }
    this.#outgrow();
  }

  #outgrow(): void {
    if (this.#older?.states.size === 0) this.#older = undefined;
  }

  /** All instants become more by that. `false`: not now. */
  shift(by: number): boolean {
    if (this.#older !== undefined) return false;
    const policies = this.#policies;
    this.#age((state) => cellOn(policies, state).shift(by));
    this.#outgrow();
    return true;
  }

  /** What there is is older now; two changes on the way at once are not worth keeping apart. */
  #age(carry: (state: unknown) => void): void {
    const older = this.#older;
    for (const key of older?.states.keys() ?? []) this.find(key);
    this.#older = { states: this.#states, round: this.#round, carry };
    this.#states = new Map();
    this.#round = new Round(this.#states);
  }

  #bring(key: string, older: Older): unknown {
    const state = older.states.get(key);
    if (state === undefined) return undefined;
    older.carry(state);
    this.#states.set(key, state);
    older.states.delete(key);
    this.#outgrow();
    return state;
  }

  /** The next on the way round: dropped if it does not matter any more. */
  #look(now: number): readonly [string, unknown] | undefined {
    const older = this.#older?.round.next();
    if (older !== undefined) this.find(older[0]);
    const next = older ?? this.#round.next();
    if (next === undefined || this.#isInUse(next[0])) return undefined;
    if (this.#lifetime(next[1], now) > 0) return next;
    this.#states.delete(next[0]);
    return undefined;
  }

  #lifetime(state: unknown, now: number): number {
    this.#cell.state = state;
    return this.#cell.lifetime(now);
  }

  /** @param used by the new key */
  #makeRoom(key: string, used: number, now: number): boolean {
    const most = Math.min(this.size, MOST_LOOKS[this.#whenFull]);
    let victim: UsedKey | undefined;
    const step = most <= SMALL ? most : LOOKS_FOR_ROOM;
    for (let looks = 0; looks < most; looks += step) {
      this.#search(step, now);
      if (this.size < this.#maxKeys) return true;
      if (this.#whenFull === "refuse") continue;
      victim = this.#leastUsed.first((known) => this.#usageOf(known, now));
      if (victim !== undefined && victim.used <= used) break;
    }
    if (victim === undefined) return false;
    this.forget(victim.key);
    this.#leastUsed.offerLightest(key, used);
    return true;
  }

  #search(looks: number, now: number): void {
    for (let i = 0; i < looks && this.size >= this.#maxKeys; i++) {
      const [key, state] = this.#look(now) ?? [];
      if (key === undefined || this.#whenFull === "refuse") continue;
      this.#leastUsed.offer(key, this.#usageIn(state, now));
    }
  }

  #usageOf(key: string, now: number): number | undefined {
    const state = this.find(key);
    return state === undefined || this.#isInUse(key) ? undefined : this.#usageIn(state, now);
  }
}
