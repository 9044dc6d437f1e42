import { type Amount, combine, sizeOf } from "../../../permits.ts";
import type { Snapshot } from "../../../stores/outage-cell.ts";
import type { Answer } from "../../../stores/store.ts";
import { type PermitRequest, StoreCall } from "../permit-request.ts";
import type { WaitLine } from "../wait-line.ts";

/** A store that is used is asked how it stands that often, ms. */
const EVERY_MS = 50;

export interface SnapshotOptions {
  readonly line: WaitLine;
  send(request: PermitRequest): void;
}

/** How a store stood when it last answered that, and what this process has been given since. */
export class StoreSnapshot {
  readonly #options: SnapshotOptions;
  readonly #nothing: Amount;
  #owed: readonly number[] | undefined;
  #takenAt = 0;
  #heldUntil = 0;
  #since: Amount;
  #nextMs = -Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(shape: Amount, options: SnapshotOptions) {
    this.#options = options;
    this.#nothing = combine(shape, shape, () => 0);
    this.#since = this.#nothing;
  }

  /** A request for the next snapshot, if the last one is old enough. */
  inquiry(): PermitRequest | undefined {
    return performance.now() < this.#nextMs ? undefined : this.#inquire();
  }

  /** The store has given that to a caller here. */
  taken(amount: Amount): void {
    if (sizeOf(amount) === 0) return;
    this.#since = combine(this.#since, amount, (sum, permits = 0) => sum + permits);
    // what comes last must be known too
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => this.#options.send(this.#inquire()), EVERY_MS);
    this.#timer.unref?.();
  }

  /** Whatever was answered is of no use: ask again. */
  outdated(): void {
    this.#nextMs = -Infinity;
  }

  /** No timer is left. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Undefined where the store has never answered. */
  get snapshot(): Snapshot | undefined {
    if (this.#owed === undefined) return undefined;
    const now = this.#options.line.now();
    const ago = Math.max(0, now - this.#takenAt);
    const held = Math.max(0, this.#heldUntil - now);
    return { owed: this.#owed, ago, since: this.#since, held };
  }

  #inquire(): PermitRequest {
    this.close();
    this.#nextMs = performance.now() + EVERY_MS;
    const call = new StoreCall<void>({
      request: () => ({ verb: "owed" }),
      result: (answer) => this.#answered(answer),
    });
    call.promise.catch(() => {});
    return call;
  }

  #answered({ wait, owed }: Answer): void {
    this.#takenAt = this.#options.line.now();
    this.#owed = owed;
    this.#heldUntil = this.#takenAt + wait;
    this.#since = this.#nothing;
    this.close();
  }
}
