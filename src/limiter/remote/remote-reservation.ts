import { atLeastZero } from "../../check.ts";
import { toMillis } from "../../clock.ts";
import { ReservationCancelledError } from "../../errors.ts";
import { type Amount, combine, type Permits, sameAmount, sizeOf } from "../../permits.ts";
import type { Cell } from "../../stores/memory.ts";
import type { Answer } from "../../stores/store.ts";
import type { AbortGroups } from "../abort-groups.ts";
import type { Reservation, WaitOptions } from "../face.ts";
import { checkWaitOptions } from "../options.ts";
import type { WaitLine } from "./wait-line.ts";

/** Where more or less than was reserved is settled, and what is not used goes. */
export interface RemoteAccount {
  charge(amount: Amount): Promise<void>;
  refund(amount: Amount): Promise<void>;
  giveBack(amount: Amount, answer: Answer): Promise<void>;
  /** Those for which somebody waits in `ready()`. */
  readonly awaited: Set<RemoteReservation>;
  /** Those that a signal gives up. */
  readonly signals: Pick<AbortGroups<RemoteReservation>, "add" | "delete">;
  /** Throws when the limiter was closed. */
  checkOpen(): void;
  /** It is told who gives up, after that many microseconds. */
  cancelled(amount: Amount, waited: number, reason: unknown): void;
}

/**
 * Permits that a store elsewhere has promised. The instant stays as it was told; a pause alone
 * defers it.
 */
export class RemoteReservation implements Reservation {
  readonly permits: Permits;
  readonly waitMs: number;
  readonly #account: RemoteAccount;
  readonly #line: WaitLine;
  readonly #cell: Cell;
  readonly #amount: Amount;
  readonly #answer: Answer;
  readonly #due: number;
  /** What it has taken: the estimate, what `settle` made of it, or nothing any more. */
  #taken: Amount;
  #cancelled = false;
  /** Those who wait in `ready()`. */
  readonly #stop = new Set<(reason: unknown) => void>();

  constructor(
    account: RemoteAccount,
    line: WaitLine,
    cell: Cell,
    permits: Permits,
    amount: Amount,
    answer: Answer,
    due: number,
  ) {
    this.#account = account;
    this.#line = line;
    this.#cell = cell;
    this.permits = permits;
    this.waitMs = toMillis(answer.wait);
    this.#amount = amount;
    this.#taken = amount;
    this.#answer = answer;
    this.#due = due;
  }

  async ready(options?: WaitOptions): Promise<number> {
    const signal = checkWaitOptions(options);
    if (signal?.aborted) {
      this.abort(signal.reason);
      throw signal.reason;
    }
    if (this.#cancelled) throw new ReservationCancelledError(this.waitMs);
    if (this.#line.reached(this.#due)) return this.waitMs;
    this.#account.checkOpen();
    await this.#whenDue(signal);
    return this.waitMs;
  }

  async cancel(): Promise<boolean> {
    const amount = this.#taken;
    if (!this.#giveUp(new ReservationCancelledError(this.waitMs))) return false;
    await this.#giveBack(amount);
    return true;
  }

  /** As if it had not been made, whether its instant has come or not. */
  async undo(): Promise<void> {
    const amount = this.#taken;
    if (sizeOf(amount) === 0) return;
    this.#giveUp(new ReservationCancelledError(this.waitMs));
    this.#taken = combine(amount, amount, () => 0);
    await this.#giveBack(amount);
  }

  /** Whether somebody may still wait for it. */
  get pending(): boolean {
    return !this.#cancelled && !this.#line.reached(this.#due);
  }

  get size(): number {
    return sizeOf(this.#amount);
  }

  async settle(actual: Permits): Promise<void> {
    const used = this.#cell.amount(actual, atLeastZero);
    const before = this.#taken;
    const after = combine(before, used, (was, is = was) => is);
    const more = combine(before, used, (was, is = was) => Math.max(0, is - was));
    const less = combine(before, used, (was, is = was) => Math.max(0, was - is));
    this.#taken = after;
    try {
      await Promise.all([this.#account.charge(more), this.#account.refund(less)]);
    } catch (error) {
      if (this.#taken === after) this.#taken = before;
      throw error;
    }
  }

  #giveUp(reason: unknown): boolean {
    if (!this.pending) return false;
    this.#cancelled = true;
    const waited = this.#line.now() - this.#due + this.#answer.wait;
    this.#account.cancelled(this.#amount, Math.max(0, waited), reason);
    this.#taken = combine(this.#taken, this.#taken, () => 0);
    for (const stop of this.#stop) stop(reason);
    return true;
  }

  /** Nobody waits for the answer: at worst the permits are lost. */
  abort(reason: unknown): void {
    const amount = this.#taken;
    if (this.#giveUp(reason)) this.#giveBack(amount).catch(() => {});
  }

  async #giveBack(amount: Amount): Promise<void> {
    // once settled it is not what was granted any more
    if (sameAmount(amount, this.#amount)) await this.#account.giveBack(amount, this.#answer);
    else await this.#account.refund(amount);
  }

  #whenDue(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = () => {
        this.#stop.delete(stop);
        if (this.#stop.size === 0) this.#account.awaited.delete(this);
        if (signal !== undefined) this.#account.signals.delete(signal, this);
      };
      const timer = this.#line.alarm(this.#due, () => {
        end();
        resolve();
      });
      const stop = (reason: unknown) => {
        timer.cancel();
        end();
        reject(reason);
      };
      this.#stop.add(stop);
      this.#account.awaited.add(this);
      if (signal !== undefined) this.#account.signals.add(signal, this);
    });
  }
}
