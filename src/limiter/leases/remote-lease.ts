import { LONGEST_TIMEOUT_MS } from "../../clock.ts";
import { asyncDispose } from "../../dispose.ts";

/** A place among those who run, in whichever process. */
export interface RemoteLease extends AsyncDisposable {
  /**
   * Aborted, with a LeaseLostError, when the lease may have lapsed and its place be somebody else's:
   * it could not be renewed in time (Redis was away, or this process suspended), or its state was
   * lost. That Redis is away is no reason where the limiter's `whenUnavailable` is `"local"` or
   * `"allow"`. With a LimiterClosedError by `close()`.
   *
   * It is aborted by a timer. Code that runs after the event loop was blocked, before the first timer,
   * still reads `aborted === false` though the lease may have lapsed: wait for a turn of the loop first.
   */
  readonly signal: AbortSignal;
  /**
   * Gives the place back; a second time does nothing. Resolves when that has been told, or has
   * failed: then it is told again in the background until the lease has lapsed. Never rejects.
   */
  release(): Promise<void>;
}

type Outcome = RemoteLease | undefined | Promise<never>;

/** What one who asks has at the store: nothing yet, a ticket, a lease. It is the lease, too. */
export class Claim implements RemoteLease {
  readonly id: string;
  /** To be refused is an error. */
  readonly #insists: boolean;
  readonly #asked = performance.now();
  /** It may wait for a place. */
  readonly waits: boolean;
  /** Ends the wait. */
  readonly waitSignal: AbortSignal | undefined;
  /**
   * `asked`: a request for a lease is under way. `waiting`: it has a ticket. `parked`: the store is
   * away, and it waits here.
   */
  state: "asked" | "waiting" | "parked" | "held" | "gone" = "asked";
  /** Counts as one who waits, since it has had a ticket. */
  seated = false;
  /** The store may know of it. */
  isKnown = false;
  /** How the store is asked to keep it; `adopt`: it was away, and may not have it. */
  verb: "keep" | "adopt" = "keep";
  /** Its time was over while the store was being asked. */
  overdue = false;
  /** From then on the store may have let it lapse, ms. */
  deadline = 0;
  timer: ReturnType<typeof setTimeout> | undefined;
  readonly resolve: (outcome: Outcome) => void;
  readonly #giveBack: (claim: Claim) => Promise<void>;
  #released: Promise<void> | undefined;
  /** Made when somebody asks for it: most never do. */
  #controller: AbortController | undefined;
  #lost: Error | undefined;

  constructor(
    id: string,
    insists: boolean,
    waits: boolean,
    waitSignal: AbortSignal | undefined,
    resolve: (outcome: Outcome) => void,
    giveBack: (claim: Claim) => Promise<void>,
  ) {
    this.id = id;
    this.#insists = insists;
    this.waits = waits;
    this.waitSignal = waitSignal;
    this.resolve = resolve;
    this.#giveBack = giveBack;
  }

  /** Calls back when so much time is over, unless it has been settled by then. */
  limitWait(timeoutMs: number, over: () => void): void {
    const end = performance.now() + timeoutMs;
    const look = () => {
      const leftMs = end - performance.now();
      if (leftMs <= 0) over();
      else this.timer = setTimeout(look, Math.min(LONGEST_TIMEOUT_MS, Math.ceil(leftMs)));
    };
    look();
  }

  grant(): void {
    this.state = "held";
    this.resolve(this);
  }

  /** How long it has waited, microseconds. */
  get waited(): number {
    return (performance.now() - this.#asked) * 1000;
  }

  /** Why it would be refused. */
  get refusal(): "queue-full" | "too-long" {
    return this.#insists ? "queue-full" : "too-long";
  }

  /** Too many wait. */
  refuse(full: () => Error): void {
    this.resolve(this.#insists ? Promise.reject(full()) : undefined);
  }

  /** Its time is over. */
  expire(): void {
    this.resolve(undefined);
  }

  reject(reason: unknown): void {
    this.resolve(Promise.reject(reason));
  }

  lose(error: Error): void {
    this.#lost = error;
    this.#controller?.abort(error);
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#lost !== undefined) this.#controller.abort(this.#lost);
    }
    return this.#controller.signal;
  }

  release(): Promise<void> {
    this.#released ??= this.#giveBack(this);
    return this.#released;
  }

  [asyncDispose](): Promise<void> {
    return this.release();
  }
}
