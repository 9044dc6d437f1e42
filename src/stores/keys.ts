/**
 * The states of many keys under the same policies.
 *
 * A key costs its name, its place in a map and the algorithm's state. What no longer matters (a new
 * state would do) is dropped without timers and without pauses: each new key looks at two others on
 * its way round the map, and so does every sixteenth call at one. The map so holds at most about
 * twice what matters; when nobody calls, nothing is dropped.
 *
 * New numbers and another origin of time hold for all keys at once, but each state is brought up to
 * them when it is next touched, or by those who go round.
 *
 * Times are microseconds on the holder's scale.
 */
import { type Cell, cellOn, freshState, openCell, type PolicyList } from "./memory.ts";
import { Round } from "./round.ts";

/** How many a new key looks at on its way, and how many where there is no room. */
const LOOKS = 2;
const LOOKS_FOR_ROOM = 64;
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
  readonly #evicts: boolean;
  /** Whether the state of that key is in use and must stay. */
  readonly #isInUse: (key: string) => boolean;
  #policies: PolicyList;
  /** Lends itself to one state after the other. */
  #cell: Cell;
  #states = new Map<string, unknown>();
  #round = new Round(this.#states);
  #older: Older | undefined;
  #calls = 0;

  constructor(
    policies: PolicyList,
    maxKeys: number,
    whenFull: "refuse" | "evict",
    isInUse: (key: string) => boolean,
  ) {
    this.#policies = policies;
    this.#maxKeys = maxKeys;
    this.#evicts = whenFull === "evict";
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

  find(key: string): unknown {
    const state = this.#states.get(key);
    return state === undefined && this.#older !== undefined ? this.#bring(key, this.#older) : state;
  }

  /** Something was asked for. */
  tend(now: number): void {
    this.#calls += 1;
    if (this.#calls % CALLS_A_LOOK === 0) this.#look(now);
  }

  /** Keeps the state of a key that is new, unless there is no room. */
  admit(key: string, state: unknown, now: number): boolean {
    for (let i = 0; i < LOOKS; i++) this.#look(now);
    if (this.size >= this.#maxKeys && !this.#makeRoom(now)) return false;
    this.#states.set(key, state);
    return true;
  }

  forget(key: string): boolean {
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

  #makeRoom(now: number): boolean {
    let victim: string | undefined;
    let soonest = Infinity;
    for (let i = 0; i < LOOKS_FOR_ROOM && this.size >= this.#maxKeys; i++) {
      const [key, state] = this.#look(now) ?? [];
      if (key === undefined) continue;
      const lifetime = this.#lifetime(state, now);
      if (lifetime >= soonest) continue;
      soonest = lifetime;
      victim = key;
    }
    if (this.size >= this.#maxKeys && this.#evicts && victim !== undefined) this.forget(victim);
    return this.size < this.#maxKeys;
  }
}
