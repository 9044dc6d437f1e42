import type { Policy } from "../../../algorithms/algorithm.ts";
import type { Clock } from "../../../ground/clock.ts";
import type { StoreUnavailableError } from "../../../ground/errors.ts";
import { type Amount, combine } from "../../../ground/permits.ts";
import { openCell } from "../../../stores/joint-cell.ts";
import type { OutageCell } from "../../../stores/outage-cell.ts";
import type { Answer } from "../../../stores/store.ts";
import type { Meter } from "../../meter.ts";
import { correct } from "../../reservation.ts";
import type { KeptLimits } from "../kept-limits.ts";
import {
  type ChangeVerb,
  changeOf,
  type Here,
  type PermitRequest,
  StoreCall,
} from "../permit-request.ts";
import type { WaitLine } from "../wait-line.ts";
import { LocalFallback } from "./local-fallback.ts";
import { MacrotaskGate } from "./macrotask-gate.ts";
import { ThrowWhenUnavailable } from "./throw.ts";

/** The part of the limiter that the strategies "local" and "allow" use. */
export interface HereOptions {
  readonly name: string;
  readonly clock: Clock;
  readonly line: WaitLine;
  readonly meter: Meter;
  readonly names: readonly string[];
  /** Limits that operators keep in keys. */
  readonly limits: KeptLimits;
  /** How many processes share the limit. */
  readonly instances: () => number;
  /** The policies in force. */
  policies(): readonly Policy[];
  hasRoom(amount: Amount): boolean;
  full(amount: Amount, policies: readonly Policy[]): Error;
  /** Counts permits that were granted without the store. */
  granted(amount: Amount): void;
  send(request: PermitRequest): void;
  /** Pauses the limiter on the store, and callers with permits promised by the store. */
  pause(micros: number): void;
}

/** Answers requests in this process while the store is away. */
export abstract class AnswerHere extends ThrowWhenUnavailable {
  override readonly awayOnError = true;
  override readonly awayOnDisconnect = true;
  protected readonly options: HereOptions;
  readonly #gate = new MacrotaskGate();
  #fallback: LocalFallback | undefined;
  #isAway = false;

  constructor(options: HereOptions) {
    super();
    this.options = options;
  }

  /** Returns this process' share of the policies, at most 1. */
  protected abstract fraction(): number;
  /** Returns a function that opens the state of the fallback, and how long it is paused, microseconds. */
  protected abstract begin(policies: readonly Policy[]): {
    readonly open: (fraction: number, now: number, epoch: number) => OutageCell;
    readonly heldFor: number;
  };

  override get isIdle(): boolean {
    if (!super.isIdle || this.#fallback?.isIdle === false) return false;
    this.#fallback = undefined;
    return true;
  }

  override get waiting(): number {
    return this.#fallback?.waiting ?? 0;
  }

  override failed(request: PermitRequest, error: StoreUnavailableError, isSent: boolean): void {
    const isKept = request.promisedUntil !== undefined && !isSent;
    if (isKept || request.runHere === undefined) super.failed(request, error, isSent);
    else if (isSent) request.runHere(this.here, true);
    else this.#gate.pass(() => this.#runLater(request));
  }

  override get here(): Here {
    this.#fallback ??= this.#open();
    return this.#fallback;
  }

  #runLater(request: PermitRequest): void {
    if (request.gone) return;
    // the store may be back by now
    if (this.#isAway) request.runHere?.(this.here, false);
    else this.options.send(request);
  }

  override lost(): void {
    this.#isAway = true;
  }

  override late(request: PermitRequest, answer: Answer, sentAt: number): void {
    this.#fallback?.sentWasRun();
    super.late(request, answer, sentAt);
  }

  /** Charges the permits used in the outage to the store, and sends the requests of waiting callers. */
  override recovered(send: (request: PermitRequest) => void): void {
    this.#isAway = false;
    super.recovered(send);
    const change = (verb: ChangeVerb, amount: Amount) => {
      const call = new StoreCall(changeOf(verb, amount));
      call.promise.catch(() => {});
      this.options.send(call);
    };
    const account = (taken: ChangeVerb) => ({
      charge: (amount: Amount) => change(taken, amount),
      refund: (amount: Amount) => change("refund", amount),
    });
    const settlement = this.#fallback?.retire(account("charge"));
    this.#fallback = undefined;
    if (settlement === undefined) return;
    const { used, pause, visitors } = settlement;
    if (pause > 0) this.options.pause(pause);
    correct(
      account("settle"),
      combine(used, used, () => 0),
      used,
    );
    for (const visitor of visitors) this.options.send(visitor);
  }

  #open(): LocalFallback {
    const { policies, line, ...options } = this.options;
    const list = policies();
    const { open, heldFor } = this.begin(list);
    const fallback = new LocalFallback({
      ...options,
      ...{ policies: list, open, whole: openCell({ names: options.names, list }, 0, 0) },
      fraction: () => this.fraction(),
    });
    // callers with permits promised by the store go first
    fallback.holdFor(Math.max(heldFor, line.lastIn));
    return fallback;
  }
}
