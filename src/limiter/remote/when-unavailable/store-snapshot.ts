import { type Amount, combine, sizeOf } from "../../../ground/permits.ts";
import type { Snapshot } from "../../../stores/outage-cell.ts";
import type { Answer } from "../../../stores/store.ts";
import { type PermitRequest, StoreCall } from "../permit-request.ts";
import type { WaitLine } from "../wait-line.ts";

/** How often the state of a store in use is requested, ms. */
const EVERY_MS = 50;

export interface SnapshotOptions {
  readonly line: WaitLine;
  send(request: PermitRequest): void;
}

/** Keeps the last known state of the store, and what this process was granted since then. */
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

  /** Returns a request for the next snapshot if the last one is old enough. */
  inquiry(): PermitRequest | undefined {
    return performance.now() < this.#nextMs ? undefined : this.#inquire();
  }

  /** Called when the store has granted an amount to this process. */
  taken(amount: Amount): void {
    if (sizeOf(amount) === 0) return;
    this.#since = combine(this.#since, amount, (sum, permits = 0) => sum + permits);
    // a timer requests a snapshot after the last grant, when no other batch follows
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => this.#options.send(this.#inquire()), EVERY_MS);
    this.#timer.unref?.();
  }

  /** Makes the next `inquiry` request a new snapshot: the last one is outdated. */
  outdated(): void {
    this.#nextMs = -Infinity;
  }

  /** Cancels the timer. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** The last known state; undefined if the store has never answered. */
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
