/** Marks errors of every copy and version of this package. */
const MARK: unique symbol = Symbol.for("smooth-limiter/error");

/**
 * The base class of this package's errors. Only bad arguments are a `RangeError` or a `TypeError`.
 *
 * `instanceof` compares the mark and the code, so it also works for an error of another copy of this
 * package: a program may load both its ES modules and its CommonJS build.
 */
export class LimiterError<Facts extends object = object> extends Error {
  static override [Symbol.hasInstance](error: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: the class that is asked may be a subclass
    return super[Symbol.hasInstance](error) || isErrorOf(this, error);
  }

  /** Identifies the kind of error for programs; stable, unlike the message. */
  readonly code: string;
  /** The numbers of the message, for programs. */
  readonly facts: Readonly<Facts>;

  constructor(code: string, message: string, facts: Facts, options?: ErrorOptions) {
    super(message, options);
    // a minifier renames the classes of this package, so their names come from their codes
    this.name = Object.hasOwn(new.target, "code") ? nameOf(code) : new.target.name;
    this.code = code;
    this.facts = Object.freeze(facts);
  }

  get [MARK](): true {
    return true;
  }
}

/** Returns `QueueFullError` for `QUEUE_FULL`. */
function nameOf(code: string): string {
  const words = code.split("_").map((word) => word[0] + word.slice(1).toLowerCase());
  return `${words.join("")}Error`;
}

/** Whether it is an error of another copy. */
function isErrorOf(
  asked: { readonly name: string; readonly code?: unknown },
  error: unknown,
): boolean {
  const { [MARK]: isMarked, code } = Object(error);
  // a user's class that extends one of these inherits the code, so only its own instances count
  const isSame = asked === LimiterError || (Object.hasOwn(asked, "code") && asked.code === code);
  return isMarked === true && isSame;
}

/**
 * A request for more permits at once than the policy can ever hold. Waiting does not help; smaller
 * requests do.
 */
export class PermitsExceedCapacityError extends LimiterError<{
  /** The name of the policy. */
  readonly policy: string;
  /** How many permits the call asked for. */
  readonly permits: number;
  /** The most permits that the policy can hold. */
  readonly capacity: number;
}> {
  static readonly code = "PERMITS_EXCEED_CAPACITY";

  constructor(policy: string, permits: number, capacity: number, why = "") {
    super(
      PermitsExceedCapacityError.code,
      `${permits} permits can never pass policy "${policy}", which holds ${capacity} at most${why}`,
      { policy, permits, capacity },
    );
  }
}

/**
 * The caller would have to wait, but callers already wait for `maxWaiting` permits; or the caller
 * waited, and was dropped to make room for a later one (`onFull`). For a ConcurrencyLimiter and a
 * PacedQueue the numbers count slots and jobs.
 */
export class QueueFullError extends LimiterError<{
  /** The limiter's name. */
  readonly limiter: string;
  /** How many permits the call asked for. */
  readonly permits: number;
  /** How many permits callers wait for. */
  readonly waiting: number;
  /** The bound that was reached. */
  readonly maxWaiting: number;
  /** `true`: the caller waited and was dropped; absent: it was refused at once. */
  readonly dropped?: true;
}> {
  static readonly code = "QUEUE_FULL";

  constructor(
    limiter: string,
    permits: number,
    waiting: number,
    maxWaiting: number,
    dropped = false,
  ) {
    const what = dropped ? "dropped to make room for a later request" : "the queue is full";
    super(
      QueueFullError.code,
      `limiter "${limiter}": ${what}: ${permits} asked for, ${waiting} waiting, maxWaiting is ${maxWaiting}`,
      { limiter, permits, waiting, maxWaiting, ...(dropped ? { dropped } : {}) },
    );
  }
}

/** A new key was refused: `maxKeys` keys have a state that cannot be forgotten. */
export class TooManyKeysError extends LimiterError<{
  /** The limiter's name. */
  readonly limiter: string;
  /** The bound that was reached. */
  readonly maxKeys: number;
}> {
  static readonly code = "TOO_MANY_KEYS";

  constructor(limiter: string, maxKeys: number) {
    super(
      TooManyKeysError.code,
      `limiter "${limiter}": no room for a new key: maxKeys is ${maxKeys}`,
      { limiter, maxKeys },
    );
  }
}

/**
 * The store could not be reached, did not answer in time, or refused the request. `cause` is the
 * store's own error, or a TimeoutError.
 */
export class StoreUnavailableError extends LimiterError<{
  /** The limiter's name. */
  readonly limiter: string;
  /** How long the limiter waits for a reply, ms. */
  readonly timeoutMs: number;
}> {
  static readonly code = "STORE_UNAVAILABLE";

  constructor(limiter: string, timeoutMs: number, cause: unknown) {
    super(
      StoreUnavailableError.code,
      `limiter "${limiter}": the store is unavailable: ${readable(cause).message}`,
      { limiter, timeoutMs },
      { cause },
    );
  }
}

/** The cause where the store sent no reply in time. */
export function noAnswer(timeoutMs: number): DOMException {
  return new DOMException(`no answer within ${timeoutMs} ms`, "TimeoutError");
}

/** `ready()` of a reservation that was cancelled: its permits are available to other callers. */
export class ReservationCancelledError extends LimiterError<{ readonly waitMs: number }> {
  static readonly code = "RESERVATION_CANCELLED";

  constructor(waitMs: number) {
    super(ReservationCancelledError.code, `the reservation (wait ${waitMs} ms) was cancelled`, {
      waitMs,
    });
  }
}

/**
 * The lease of a shared limiter expired before it could be renewed, or its state was lost. Its
 * slots may be in use by another caller now. This is the reason of `lease.signal`.
 */
export class LeaseLostError extends LimiterError<{
  /** The limiter's name. */
  readonly limiter: string;
  /** How long a lease stays taken without a renewal, ms. */
  readonly leaseMs: number;
}> {
  static readonly code = "LEASE_LOST";

  constructor(limiter: string, leaseMs: number) {
    super(LeaseLostError.code, `limiter "${limiter}": the lease (${leaseMs} ms) was lost`, {
      limiter,
      leaseMs,
    });
  }
}

/** The limiter was closed: its waiters are rejected, and its leases are not renewed any more. */
export class LimiterClosedError extends LimiterError<{ readonly limiter: string }> {
  static readonly code = "LIMITER_CLOSED";

  constructor(limiter: string) {
    super(LimiterClosedError.code, `limiter "${limiter}" was closed`, { limiter });
  }
}

/**
 * Returns the error, or an Error for what is none or throws when it is read: clients reject with anything,
 * and a second error while the first is handled would leave calls open.
 */
export function readable(reason: unknown): Error {
  try {
    const isError = reason instanceof Error && typeof reason.message === "string";
    return isError && `${reason}` !== "" ? reason : new Error(String(reason), { cause: reason });
  } catch {
    return new Error("the client failed with an error that cannot be read");
  }
}
