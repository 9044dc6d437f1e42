/**
 * A circuit breaker: whether a store can be reached, for all limiters that ask it over the same
 * connection. Once one of them has waited in vain nobody else does: while the breaker is open,
 * nothing is asked but, after growing and jittered pauses, by one of those who are affected,
 * whether the store is back. As soon as it is, all of them are told.
 */
import { LONGEST_TIMEOUT_MS } from "../clock.ts";

/** Pauses before a store that is away is looked for again, ms: each twice the one before. */
const FIRST_PAUSE_MS = 25;
export const LONGEST_PAUSE_MS = 1000;

/** A limiter whose store is away. */
export interface Absentee {
  readonly timeoutMs: number;
  /** Asks for as little as can be; it must write, for a store that can only read does not help. */
  probe(): Promise<unknown>;
  /** Somebody waits for the store, which keeps the process alive. */
  readonly isAwaited: boolean;
  /** The store answers, or is to be asked as if it did. */
  found(): void;
  /**
   * Nothing would be lost if it were forgotten; then it joins again when it is asked. Absent: it is
   * one of few.
   */
  readonly isIdle?: boolean;
  forgotten?(): void;
}

/**
 * Those whose callers wait find the store each by themselves, but only one of them at a time looks
 * for it; the others do when that one has found it, or when it gives up.
 */
class Patrol {
  pauseMs = FIRST_PAUSE_MS;
  readonly #followers = new Set<Breaker>();
  #leader: Breaker | undefined;

  /** @returns whether it is the one who looks */
  leads(breaker: Breaker): boolean {
    this.#leader ??= breaker;
    if (this.#leader !== breaker) this.#followers.add(breaker);
    return this.#leader === breaker;
  }

  /** The next one's turn. */
  leave(breaker: Breaker): void {
    this.#followers.delete(breaker);
    if (this.#leader !== breaker) return;
    this.#leader = undefined;
    for (const follower of this.#followers) {
      this.#followers.delete(follower);
      follower.awaited();
      if (this.#leader !== undefined) return;
    }
  }

  /** One has found it: the others look, too. */
  found(breaker: Breaker): void {
    const others = new Set(this.#followers);
    if (this.#leader !== undefined) others.add(this.#leader);
    others.delete(breaker);
    this.#followers.clear();
    this.#leader = undefined;
    for (const other of others) other.mended();
  }
}

/** So many are looked through at each probe for those who are idle. */
const MANY = 100;

export class Breaker {
  readonly #patient: boolean;
  readonly #absentees = new Set<Absentee>();
  /** How often the store has been away: what was asked before says nothing of this time. */
  #absences = 0;
  #cause: unknown;
  #isOpen = false;
  #isCut = false;
  readonly #patrol: Patrol | undefined;
  /** How long to pause before the next probe. */
  readonly #pace: { pauseMs: number };
  #ofPatient: Patrol | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * @param patient a store that answers, but too late, is there; and it is looked for only while
   *   somebody waits for it
   * @param patrol of those who take turns in that
   */
  constructor(patient = false, patrol?: Patrol) {
    this.#patient = patient;
    this.#patrol = patrol;
    this.#pace = patrol ?? { pauseMs: FIRST_PAUSE_MS };
  }

  /** A patient one over the same connection: all these take turns in looking for the store. */
  forPatient(): Breaker {
    this.#ofPatient ??= new Patrol();
    return new Breaker(true, this.#ofPatient);
  }

  /** Somebody has asked in vain, and the store has not been found since. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** The client has no connection, as it says itself; who waits may get one in time. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** Why the store is taken to be away. */
  get cause(): unknown {
    return this.#cause;
  }

  /** How many wait to be told that the store is back. */
  get size(): number {
    return this.#absentees.size;
  }

  cut(cause: unknown): void {
    this.#isCut = true;
    if (!this.#isOpen) this.#cause = cause;
  }

  /** The client has a connection again: no need to wait for the end of a pause. */
  mended(): void {
    this.#isCut = false;
    this.#pace.pauseMs = FIRST_PAUSE_MS;
    if (this.#isOpen) this.#probe();
  }

  /** It has asked in vain, or would: it is told when the store is back. */
  join(absentee: Absentee, cause: unknown): void {
    if (!this.#isOpen) {
      this.#isOpen = true;
      this.#absences += 1;
      this.#cause = cause;
    }
    this.#absentees.add(absentee);
    this.#lookOut();
  }

  /** It needs the store no more. */
  leave(absentee: Absentee): void {
    this.#absentees.delete(absentee);
    if (this.#absentees.size > 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#patrol?.leave(this);
  }

  /** Keys that are asked once would otherwise pile up as long as the store is away. */
  #forgetIdle(prober: Absentee): void {
    for (const absentee of this.#absentees) {
      if (absentee === prober || !absentee.isIdle) continue;
      this.#absentees.delete(absentee);
      absentee.forgotten?.();
    }
  }

  /** The store is there. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#pace.pauseMs = FIRST_PAUSE_MS;
    this.#isOpen = false;
    const absentees = [...this.#absentees];
    this.#absentees.clear();
    for (const absentee of absentees) absentee.found();
    this.#patrol?.found(this);
  }

  /** Somebody waits for the store now. */
  awaited(): void {
    this.#timer?.ref?.();
    this.#lookOut();
  }

  get #isAwaited(): boolean {
    return [...this.#absentees].some((absentee) => absentee.isAwaited);
  }

  #lookOut(): void {
    if (this.#timer !== undefined || (this.#patient && !this.#isAwaited)) return;
    if (this.#patrol?.leads(this) === false) return;
    const { pauseMs } = this.#pace;
    this.#sleep(pauseMs * (0.5 + Math.random() / 2), () => this.#probe());
    this.#pace.pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
  }

  #sleep(ms: number, then: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, Math.min(LONGEST_TIMEOUT_MS, ms));
    if (!this.#isAwaited) this.#timer.unref?.();
  }

  #probe(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const [absentee] = this.#absentees;
    if (absentee === undefined || (this.#patient && !absentee.isAwaited)) {
      this.#patrol?.leave(this);
      return;
    }
    if (this.#absentees.size > MANY) this.#forgetIdle(absentee);
    // the next one is another's, lest the trouble of one be taken for that of all
    this.#absentees.delete(absentee);
    this.#absentees.add(absentee);
    const absence = this.#absences;
    let late = false;
    const again = () => {
      late = true;
      this.#timer = undefined;
      this.#patrol?.leave(this);
      if (this.#isOpen) this.#lookOut();
    };
    this.#sleep(absentee.timeoutMs, again);
    const probe = this.#timer;
    const isNews = () => this.#isOpen && absence === this.#absences;
    absentee.probe().then(
      () => {
        if (isNews() && (!late || this.#patient)) this.close();
      },
      (error) => {
        // those who ask will hear it themselves
        if (isNews() && isPermanent(error)) this.close();
        else if (this.#timer === probe) {
          clearTimeout(probe);
          again();
        }
      },
    );
  }
}

/**
 * What a server says of a key, a user or itself that stays as it is. Rights that a script lacks have
 * no code of their own in Redis 6 and 7.0, nor has a key whose value the script cannot read. (A
 * Cluster's client wraps `MOVED`, which passes there.)
 */
const PERMANENT =
  /WRONGTYPE|NOPERM|NOAUTH|WRONGPASS|CROSSSLOT|^\w*Error: MOVED |user executing the script|unknown command|bad argument #|attempt to (?:call|compare|concatenate|index|perform) /;

/** The store is there, and waiting does not mend it. */
export function isPermanent(cause: unknown): boolean {
  return cause instanceof TypeError || PERMANENT.test(`${cause}`);
}
