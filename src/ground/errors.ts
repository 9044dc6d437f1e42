/**
 * The base class of this package's errors. Only bad arguments are a `RangeError` or a `TypeError`.
 */
export class LimiterError<Facts extends object = object> extends Error {
  /** Identifies the kind of error for programs; stable, unlike the message. */
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
 * A request for more permits at once than the policy can ever hold. Waiting does not help; smaller
 * requests do.
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
 * The caller would have to wait, and `maxWaiting` permits are already waited for; or the caller
 * waited, and was dropped to make room for a later one (`onFull`). For a ConcurrencyLimiter and a
 * PacedQueue the numbers count callers and jobs.
 */
export class QueueFullError extends LimiterError<{
  readonly limiter: string;
  readonly permits: number;
  readonly waiting: number;
  readonly maxWaiting: number;
  /** `true`: the caller waited and was dropped; absent: it was refused at once. */
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

/** A new key was refused: `maxKeys` keys have a state that cannot be forgotten. */
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
 * The store could not be reached, did not answer in time, or refused the request. `cause` is the
 * store's own error, or a TimeoutError.
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

/** The cause where the store sent no reply in time. */
export function noAnswer(timeoutMs: number): DOMException {
  return new DOMException(`no answer within ${timeoutMs} ms`, "TimeoutError");
}

/** `ready()` of a reservation that was cancelled: its permits are available to other callers. */
export class ReservationCancelledError extends LimiterError<{ readonly waitMs: number }> {
  constructor(waitMs: number) {
    super("RESERVATION_CANCELLED", `the reservation (wait ${waitMs} ms) was cancelled`, { waitMs });
  }
}

/**
 * The lease of a shared limiter expired before it could be renewed, or its state was lost. Its
 * place may be in use by another caller now. This is the reason of `lease.signal`.
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

/** The limiter was closed: its waiters are rejected, and its leases are not renewed any more. */
export class LimiterClosedError extends LimiterError<{ readonly limiter: string }> {
  constructor(limiter: string) {
    super("LIMITER_CLOSED", `limiter "${limiter}" was closed`, { limiter });
  }
}
