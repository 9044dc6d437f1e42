/** What every error of this package is; bad arguments alone are a `RangeError` or a `TypeError`. */
export class LimiterError<Facts extends object = object> extends Error {
  /** Stable, for programs: compare this, not the message. */
  readonly code: string;
  /** The numbers of the message, for programs. */
  readonly facts: Readonly<Facts>;

  constructor(code: string, message: string, facts: Facts, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.facts = Object.freeze(facts);
  }
}

/**
 * More permits at once than the policy can ever hold: waiting would not help, smaller requests
 * would.
 */
export class PermitsExceedCapacityError extends LimiterError<{
  readonly policy: string;
  readonly permits: number;
  readonly capacity: number;
}> {
  constructor(policy: string, permits: number, capacity: number) {
    super(
      "PERMITS_EXCEED_CAPACITY",
      `${permits} permits can never pass policy "${policy}", which holds ${capacity} at most`,
      { policy, permits, capacity },
    );
  }
}

/**
 * The caller would have to wait, and as many permits as `maxWaiting` allows are waited for already;
 * or the caller waited, and was dropped to make room for a later one (`onFull`). Of a
 * ConcurrencyLimiter and of a PacedQueue the numbers count callers and jobs.
 */
export class QueueFullError extends LimiterError<{
  readonly limiter: string;
  readonly permits: number;
  readonly waiting: number;
  readonly maxWaiting: number;
  /** `true`: it waited, and was dropped; absent: it was refused at once. */
  readonly dropped?: true;
}> {
  constructor(
    limiter: string,
    permits: number,
    waiting: number,
    maxWaiting: number,
    dropped = false,
  ) {
    const what = dropped
      ? "were dropped to make room for a later request:"
      : "would have to wait, but";
    super(
      "QUEUE_FULL",
      `limiter "${limiter}": ${permits} permits ${what} ${waiting} are waited for and maxWaiting is ${maxWaiting}`,
      { limiter, permits, waiting, maxWaiting, ...(dropped ? { dropped } : {}) },
    );
  }
}

/** A key that is new, where as many as `maxKeys` allows have a state that matters. */
export class TooManyKeysError extends LimiterError<{
  readonly limiter: string;
  readonly maxKeys: number;
}> {
  constructor(limiter: string, maxKeys: number) {
    super(
      "TOO_MANY_KEYS",
      `limiter "${limiter}": no room for a new key, since maxKeys is ${maxKeys}`,
      { limiter, maxKeys },
    );
  }
}

/**
 * The store could not be asked, did not answer in time, or refused: `cause` is its own error, or a
 * TimeoutError.
 */
export class StoreUnavailableError extends LimiterError<{
  readonly limiter: string;
  readonly timeoutMs: number;
}> {
  constructor(limiter: string, timeoutMs: number, cause: unknown) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    super(
      "STORE_UNAVAILABLE",
      `limiter "${limiter}": the store is unavailable: ${reason}`,
      { limiter, timeoutMs },
      { cause },
    );
  }
}

/** The cause where a store has said nothing at all. */
export function noAnswer(timeoutMs: number): DOMException {
  return new DOMException(`no answer within ${timeoutMs} ms`, "TimeoutError");
}

/** `ready()` of a reservation that was cancelled: its permits went to others. */
export class ReservationCancelledError extends LimiterError<{ readonly waitMs: number }> {
  constructor(waitMs: number) {
    super("RESERVATION_CANCELLED", `the reservation (wait ${waitMs} ms) was cancelled`, { waitMs });
  }
}

/**
 * A lease of a shared limiter lapsed before it could be renewed, or its state was lost: its place
 * may be somebody else's now. The reason of `lease.signal`.
 */
export class LeaseLostError extends LimiterError<{
  readonly limiter: string;
  readonly leaseMs: number;
}> {
  constructor(limiter: string, leaseMs: number) {
    super("LEASE_LOST", `limiter "${limiter}": the lease (${leaseMs} ms) was lost`, {
      limiter,
      leaseMs,
    });
  }
}

/** The limiter was closed: nobody waits there any more, and no lease is renewed. */
export class LimiterClosedError extends LimiterError<{ readonly limiter: string }> {
  constructor(limiter: string) {
    super("LIMITER_CLOSED", `limiter "${limiter}" was closed`, { limiter });
  }
}
