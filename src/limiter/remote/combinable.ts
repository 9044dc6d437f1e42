import type { StoreUnavailableError } from "../../ground/errors.ts";
import type { Amount, Permits } from "../../ground/permits.ts";
import type { Cell } from "../../stores/cell.ts";
import type { Answer, CombinedPart, Place, StoreReply } from "../../stores/store.ts";
import type { Meter } from "../meter.ts";
import type { PermitLink } from "./permit-link.ts";
import { type Here, StoreCall } from "./permit-request.ts";
import type { RemoteQueue } from "./remote-queue.ts";
import { RemoteReservation } from "./remote-reservation.ts";
import type { PermitStrategy } from "./when-unavailable/throw.ts";

/** The part of a limiter on a store that combinations of several limiters use. */
export class Combinable {
  readonly name: string;
  readonly timeoutMs: number;
  readonly meter: Meter;
  /** The policies' names and bounds; the state itself is in the store. */
  readonly cell: Cell;
  readonly #link: PermitLink;
  readonly #queue: RemoteQueue;
  readonly #strategy: PermitStrategy;

  constructor(
    { name, timeoutMs }: { readonly name: string; readonly timeoutMs: number },
    cell: Cell,
    link: PermitLink,
    queue: RemoteQueue,
    strategy: PermitStrategy,
  ) {
    this.name = name;
    this.timeoutMs = timeoutMs;
    this.cell = cell;
    this.meter = queue.meter;
    this.#link = link;
    this.#queue = queue;
    this.#strategy = strategy;
  }

  get place(): Place | undefined {
    return this.#link.place;
  }

  /** @throws LimiterClosedError */
  checkOpen(): void {
    this.#queue.checkOpen();
  }

  /** The limiter's clock, microseconds. */
  now(): number {
    return this.#queue.line.now();
  }

  /** Returns this limiter's policies and time for the combined request. */
  combinedPart(): Pick<CombinedPart, "declared" | "now" | "late"> {
    return this.#link.combinedPart();
  }

  hasRoom(amount: Amount): boolean {
    return this.#queue.hasRoom(amount);
  }

  full(amount: Amount): Error {
    return this.#queue.full(amount);
  }

  excess(amount: Amount): Error {
    return this.#queue.excess(amount);
  }

  // -- while the store is away --

  isPermanent(cause: unknown): boolean {
    return this.#link.isPermanent(cause);
  }

  /** Whether calls wait for the store. */
  get waitsForStore(): boolean {
    return this.#strategy.acceptsLate;
  }

  /** The fallback that answers in place of the store; undefined: calls fail or wait. */
  get here(): Here | undefined {
    return this.#strategy.here;
  }

  /** Returns the error with which calls fail now without being sent; undefined: they are sent. */
  refusal(): StoreUnavailableError | undefined {
    return this.#link.refusal();
  }

  /** Called when the store has answered, with the numbers in force. */
  replied(reply: Pick<StoreReply, "inForce" | "notes">): void {
    this.#link.replied(reply);
  }

  /** Called when the store could not be reached, or did not answer in time. */
  lost(cause: unknown, isOverdue: boolean): void {
    this.#link.failed([], cause, isOverdue);
  }

  /** Counts an error with which a call fails. */
  failed(error: unknown): void {
    this.#queue.failure(error);
  }

  /** Resolves when the store answers again. */
  whenBack(): Promise<void> {
    const call = new StoreCall<void>({ request: () => ({ verb: "owed" }), result: () => {} });
    this.#link.send(call);
    return call.promise;
  }

  // -- permits that were taken --

  granted(permits: Permits, amount: Amount, answer: Answer, sentAt: number): RemoteReservation {
    const wanted = { permits, amount, longest: Infinity, signal: undefined };
    const reservation = new RemoteReservation(this.#queue, wanted, () => {});
    this.#strategy.answered(reservation, answer);
    reservation.accept(answer, sentAt);
    return reservation;
  }

  returnToStore(amount: Amount, answer: Answer): void {
    this.#queue.returnToStore(amount, answer).catch(() => {});
  }
}
