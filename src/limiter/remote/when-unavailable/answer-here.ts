import type { StoreUnavailableError } from "../../../ground/errors.ts";
import { MacrotaskGate } from "../../../ground/macrotask-gate.ts";
import { type Amount, combine } from "../../../ground/permits.ts";
import type { OutagePolicyState } from "../../../stores/outage-policy-state.ts";
import type { Answer } from "../../../stores/store.ts";
import { correct } from "../../reservation.ts";
import type { Parts } from "../parts.ts";
import {
  type ChangeVerb,
  changeOf,
  type Here,
  type PermitRequest,
  StoreCall,
} from "../permit-request.ts";
import { LocalFallback, type Room, type Share } from "./local-fallback.ts";
import { ThrowWhenUnavailable } from "./throw.ts";

/** The part of the queue that the strategies "local" and "allow" use. */
export interface HereHost extends Room {
  send(request: PermitRequest): void;
  /** Pauses the limiter on the store, and callers with permits promised by the store. */
  pause(micros: number): void;
}

/** Answers requests in this process while the store is away. */
export abstract class AnswerHere extends ThrowWhenUnavailable implements Share {
  override readonly awayOnError = true;
  override readonly awayOnDisconnect = true;
  protected readonly parts: Parts;
  protected readonly host: HereHost;
  readonly #gate = new MacrotaskGate();
  #fallback: LocalFallback | undefined;
  #isAway = false;

  constructor(parts: Parts, host: HereHost) {
    super();
    this.parts = parts;
    this.host = host;
  }

  abstract fraction(): number;
  abstract open(fraction: number, now: number, epoch: number): OutagePolicyState;

  /** How long the store grants no request because of a pause, microseconds. */
  protected get heldFor(): number {
    return 0;
  }

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
    else if (isSent) request.runHere(this.#here, true);
    else this.#gate.pass(() => this.#runLater(request));
  }

  get #here(): Here {
    if (this.#fallback === undefined) {
      this.#fallback = new LocalFallback(this.parts, this.host, this);
      // callers with permits promised by the store go first
      this.#fallback.holdFor(Math.max(this.heldFor, this.parts.line.lastIn));
    }
    return this.#fallback;
  }

  #runLater(request: PermitRequest): void {
    if (request.gone) return;
    // the store may be back by now
    if (this.#isAway) request.runHere?.(this.#here, false);
    else this.host.send(request);
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
    const settlement = this.#fallback?.retire();
    this.#fallback = undefined;
    if (settlement === undefined) return;
    const { used, pause, callers } = settlement;
    if (pause > 0) this.host.pause(pause);
    const change = (verb: ChangeVerb) => (amount: Amount) => {
      const call = new StoreCall(changeOf(verb, amount));
      call.promise.catch(() => {});
      this.host.send(call);
    };
    const nothing = combine(used, used, () => 0);
    correct({ charge: change("settle"), refund: change("refund") }, nothing, used);
    for (const caller of callers) this.host.send(caller);
  }
}
