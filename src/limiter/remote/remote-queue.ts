/**
 * The calls of one limiter on a store: its waiters (requests under way, sleeping callers, reservations that
 * are awaited) and requests that have no permits to wait for.
 */
import type { Policy } from "../../algorithms/algorithm.ts";
import { AbortGroups } from "../../ground/abort-groups.ts";
import { LimiterClosedError, QueueFullError } from "../../ground/errors.ts";
import { LinkedList } from "../../ground/linked-list.ts";
import { type Amount, sizeOf } from "../../ground/permits.ts";
import type { Answer, Store } from "../../stores/store.ts";
import { mostWaiting } from "../options.ts";
import { PermitLink, type PermitSource } from "./permit-link.ts";
import {
  type CallOptions,
  type ChangeVerb,
  changeOf,
  type PermitRequest,
  StoreCall,
} from "./permit-request.ts";
import { Prefetcher } from "./prefetcher.ts";
import type { Parts } from "./remote-options.ts";
import type { Caller, RemoteWaiter, WaiterHost } from "./remote-waiter.ts";
import { whenUnavailable } from "./when-unavailable/index.ts";
import type { HereHost } from "./when-unavailable/local.ts";
import type { ThrowWhenUnavailable } from "./when-unavailable/throw.ts";

type Reserved = Parameters<WaiterHost["reserved"]>[0];

export class RemoteQueue implements WaiterHost, HereHost {
  readonly parts: Parts;
  readonly strategy: ThrowWhenUnavailable;
  readonly link: PermitLink;
  readonly prefetcher: Prefetcher | undefined;
  readonly #source: PermitSource;
  readonly #waiters = new LinkedList<RemoteWaiter>();
  readonly #signals = new AbortGroups<RemoteWaiter>((waiter, reason) => waiter.leave(reason));
  /** Reservations for the count of `maxWaiting`: each counts only as long as it is pending. */
  readonly #reserved = new Set<Reserved>();
  #closing: Promise<void> | undefined;

  constructor(store: Store, key: string, parts: Parts) {
    this.parts = parts;
    this.strategy = whenUnavailable(parts, this);
    this.link = new PermitLink(store, key, parts, this.strategy);
    this.prefetcher = parts.prefetch && new Prefetcher(parts, this.link, parts.prefetch);
    this.#source = this.prefetcher ?? this.link;
  }

  send(request: PermitRequest): void {
    this.#source.send(request);
  }

  /** Sends a request, and counts its error if it fails. */
  call<T>(options: CallOptions<T>): Promise<T> {
    this.checkOpen();
    const failed = (error: unknown) => {
      this.parts.stats.failed(error);
      options.failed?.(error);
    };
    const call = new StoreCall({ ...options, failed });
    this.link.send(call);
    return call.promise;
  }

  change(verb: ChangeVerb, amount: Amount): Promise<void> {
    return this.call(changeOf(verb, amount));
  }

  async pause(micros: number): Promise<void> {
    const paused = this.call({
      request: () => ({ verb: "pause", micros }),
      result: () => {},
      here: (here) => here.pause(micros),
    });
    this.#retime();
    await paused;
  }

  async reset(): Promise<void> {
    let isRefused = false;
    const reset = this.call({
      request: () => ({ verb: "reset" }),
      result: () => {},
      failed: () => {
        isRefused = true;
      },
    });
    this.strategy.outdated();
    // permits that return belong to the old state: they come before the reset in the same batch
    if (!isRefused) this.#retime();
    await reset;
  }

  /**
   * Sends the requests of all sleeping callers again, in the same batch, and returns the promised permits.
   * Otherwise all callers with an instant inside a pause would go at once when it ends.
   */
  #retime(): void {
    // the line holds nothing but callers
    const callers = this.parts.line.clear() as readonly Caller[];
    for (const caller of callers) caller.returnPromised();
    this.prefetcher?.release();
    for (const caller of callers) if (!caller.gone) this.send(caller);
  }

  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  /** @throws LimiterClosedError */
  checkOpen(): void {
    if (this.isClosed) throw new LimiterClosedError(this.parts.name);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close(new LimiterClosedError(this.parts.name));
    return this.#closing;
  }

  async #close(error: Error): Promise<void> {
    for (const waiter of this.#waiters.toArray()) waiter.leave(error);
    this.prefetcher?.close();
    // the line redistributes its instants first, and returns the permits that are left over
    await Promise.resolve();
    await this.link.close(error);
    const { outageStats, stats } = this.parts;
    // the limiter of a key shares its statistics with the other keys, which go on
    if (outageStats === undefined) stats.end();
  }

  // -- for the waiters and the fallback --

  track(waiter: RemoteWaiter, signal: AbortSignal | undefined): void {
    this.#waiters.add(waiter);
    if (signal !== undefined) this.#signals.add(signal, waiter);
  }

  untrack(waiter: RemoteWaiter, signal: AbortSignal | undefined): void {
    this.#waiters.remove(waiter);
    if (signal !== undefined) this.#signals.delete(signal, waiter);
  }

  reserved(reservation: Reserved): void {
    if (this.parts.maxWaiting < Infinity) this.#reserved.add(reservation);
  }

  returnToStore(amount: Amount, answer: Answer): Promise<void> {
    return this.#source.returnToStore(amount, answer);
  }

  /** How many permits callers wait for, in this process. */
  get #waiting(): number {
    let waiting = this.parts.line.permits + this.strategy.waiting;
    for (const reservation of this.#reserved) {
      if (reservation.isPending) waiting += sizeOf(reservation.amount);
      else this.#reserved.delete(reservation);
    }
    return waiting;
  }

  hasRoom(amount: Amount): boolean {
    const { maxWaiting } = this.parts;
    return maxWaiting === Infinity || this.#waiting + sizeOf(amount) <= maxWaiting;
  }

  full(amount: Amount, policies: readonly Policy[] = this.parts.inForce.policies): QueueFullError {
    const { name, maxWaiting } = this.parts;
    const most = mostWaiting(maxWaiting, policies);
    return new QueueFullError(name, sizeOf(amount), this.#waiting, most);
  }
}
