/**
 * The states of many keys under the same policies.
 *
 * A key costs its name, its entry in a map and the algorithm's state. States that no longer matter
 * (because a new state is equivalent) are removed without timers and without pauses: each new key checks
 * two others, round the map in turn, and every sixteenth call checks one. So the map holds at most about
 * twice as many states as matter. Without calls nothing is removed.
 *
 * A full table evicts the key with the least usage, so a client that invents keys evicts its own. A
 * search checks some keys in turn, and continues (up to a bound) while the best candidate has used more
 * than the new key. The keys that it has checked are kept as candidates, and so is the new key. In a
 * table of up to 64 keys the choice is exact. In a larger table the evicted key has used no more than the
 * new one, if a search has found such a key.
 *
 * New numbers and a new origin of time apply to all keys at once, but each state is converted when it is
 * next used or checked.
 *
 * Times are microseconds on the time scale of the owner.
 */

import { LeastUsed, type UsedKey } from "./least-used.ts";
import type { PolicyList } from "./policies.ts";
import { RoundRobin } from "./round-robin.ts";
import type { PolicyState } from "./state/one.ts";
import { freshState, openPolicyState, policyStateOn } from "./state/several.ts";

/** How many keys a new key checks, and how many in each step of a search for room. */
const LOOKS = 2;
const LOOKS_FOR_ROOM = 16;
/** The most keys that a search for room checks: for an expired key, or for a key with little usage. */
const MOST_LOOKS = { refuse: 64, evict: 1024 } as const;
/** In tables up to this size all keys are checked before one is evicted. */
const SMALL = 64;
/** The number of calls for each further check of a key. */
const CALLS_A_LOOK = 16;

/** States from before a change, and the function that converts each of them. */
interface Older {
  readonly states: Map<string, unknown>;
  readonly round: RoundRobin<unknown>;
  carry(state: unknown): void;
}

export class KeyStates {
  readonly #maxKeys: () => number;
  readonly #whenFull: "evict" | "refuse";
  /** Whether the state of that key is in use and must stay. */
  readonly #isInUse: (key: string) => boolean;
  #policies: PolicyList;
  /** One object that is used on one state after the other. */
  #policyState: PolicyState;
  #states = new Map<string, unknown>();
  #round = new RoundRobin(this.#states);
  readonly #leastUsed = new LeastUsed();
  #older: Older | undefined;
  #calls = 0;

  constructor(
    policies: PolicyList,
    maxKeys: () => number,
    whenFull: "evict" | "refuse",
    isInUse: (key: string) => boolean,
  ) {
    this.#policies = policies;
    this.#maxKeys = maxKeys;
    this.#whenFull = whenFull;
    this.#isInUse = isInUse;
    this.#policyState = openPolicyState(policies, 0, 0);
  }

  get size(): number {
    return this.#states.size + (this.#older?.states.size ?? 0);
  }

  get policies(): PolicyList {
    return this.#policies;
  }

  /** The policy state with the current policies; every call of this object may change its state. */
  get policyState(): PolicyState {
    return this.#policyState;
  }

  /**
   * Returns the policy state on a key's state, or on a new state that is not stored yet.
   *
   * @param time read for a new state only: most calls find one, and the epoch takes time to read
   */
  policyStateOf(state: unknown, now: number, time: { readonly epoch: number }): PolicyState {
    this.#policyState.state = state ?? freshState(this.#policies, now, time.epoch);
    return this.#policyState;
  }

  /**
   * Returns how much of its limits the key of the policy state's current state uses: permits under one policy,
   * the largest fraction of a limit under several. For comparison with other keys.
   */
  usage(now: number): number {
    const deficit = this.#policyState.deficit(now);
    if (deficit.length === 1) return deficit[0] as number;
    return Math.max(
      ...this.#policyState.quotas(now).map(({ limit }, i) => (deficit[i] as number) / limit),
    );
  }

  #usageIn(state: unknown, now: number): number {
    this.#policyState.state = state;
    return this.usage(now);
  }

  find(key: string): unknown {
    const state = this.#states.get(key);
    return state === undefined && this.#older !== undefined ? this.#bring(key, this.#older) : state;
  }

  /** Counts a call, and checks one key every sixteenth time. */
  tend(now: number): void {
    this.#calls += 1;
    if (this.#calls % CALLS_A_LOOK === 0) this.#look(now);
  }

  /**
   * Stores the state of a new key, unless there is no room.
   *
   * @param used the usage of the new key, including the permits that it is about to take
   * @returns whether the state was stored
   */
  admit(key: string, state: unknown, used: number, now: number): boolean {
    for (let i = 0; i < LOOKS; i++) this.#look(now);
    const most = this.#maxKeys();
    if (this.size >= most && !this.#makeRoom(most, key, used, now)) return false;
    // `maxKeys` has fallen: two go for each new key
    if (this.size >= most) this.#makeRoom(most, key, used, now);
    this.#states.set(key, state);
    this.#policyState.state = state;
    return true;
  }

  forget(key: string): boolean {
    this.#leastUsed.delete(key);
    const older = this.#older?.states.delete(key) ?? false;
    return this.#states.delete(key) || older;
  }

  /**
   * Replaces the policies from `now` on.
   *
   * @param done keys with states that have the new numbers already
   */
  resize(policies: PolicyList, now: number, epoch: number, done: Iterable<string>): void {
    const before = this.#policies;
    this.#age((state) => policyStateOn(before, state).resize(now, policies.list, epoch));
    this.#policies = policies;
    this.#policyState = openPolicyState(policies, now, epoch);
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

  /** Adds `by` to all instants. Returns `false` while another change is under way. */
  shift(by: number): boolean {
    if (this.#older !== undefined) return false;
    const policies = this.#policies;
    this.#age((state) => policyStateOn(policies, state).shift(by));
    this.#outgrow();
    return true;
  }

  /** Marks all states as older. Completes a previous change first: two at once are not kept apart. */
  #age(carry: (state: unknown) => void): void {
    const older = this.#older;
    for (const key of older?.states.keys() ?? []) this.find(key);
    this.#older = { states: this.#states, round: this.#round, carry };
    this.#states = new Map();
    this.#round = new RoundRobin(this.#states);
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

  /** Checks the next key in turn, and removes its state if it does not matter any more. */
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
    this.#policyState.state = state;
    return this.#policyState.lifetime(now);
  }

  /** @param used the usage of the new key */
  #makeRoom(maxKeys: number, key: string, used: number, now: number): boolean {
    const most = Math.min(this.size, MOST_LOOKS[this.#whenFull]);
    let victim: UsedKey | undefined;
    const step = most <= SMALL ? most : LOOKS_FOR_ROOM;
    for (let looks = 0; looks < most; looks += step) {
      this.#search(maxKeys, step, now);
      if (this.size < maxKeys) return true;
      if (this.#whenFull === "refuse") continue;
      victim = this.#leastUsed.first((known) => this.#usageOf(known, now));
      if (victim !== undefined && victim.used <= used) break;
    }
    if (victim === undefined) return false;
    this.forget(victim.key);
    this.#leastUsed.offerLightest(key, used);
    return true;
  }

  #search(maxKeys: number, looks: number, now: number): void {
    for (let i = 0; i < looks && this.size >= maxKeys; i++) {
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
