import type { Policy } from "../../../algorithms/algorithm.ts";
import type { Amount } from "../../../ground/permits.ts";
import { type OutageCell, ShareCell } from "../../../stores/outage-cell.ts";
import type { Answer } from "../../../stores/store.ts";
import type { PermitRequest } from "../permit-request.ts";
import { AnswerHere, type HereOptions } from "./answer-here.ts";
import { StoreSnapshot } from "./store-snapshot.ts";

/** Grants this process' share of the limit, starting from the last known state of the store. */
export class LocalWhenUnavailable extends AnswerHere {
  readonly #snapshot: StoreSnapshot;

  /** @param shape any amount of the limiter */
  constructor(shape: Amount, options: HereOptions) {
    super(options);
    this.#snapshot = new StoreSnapshot(shape, options);
  }

  protected override fraction(): number {
    return 1 / this.options.instances();
  }

  protected override begin(list: readonly Policy[]) {
    const { names } = this.options;
    const { snapshot } = this.#snapshot;
    return {
      open: (fraction: number, now: number, epoch: number): OutageCell =>
        ShareCell.open({ names, list }, fraction, snapshot, now, epoch),
      heldFor: snapshot?.held ?? 0,
    };
  }

  override piggyback(): PermitRequest | undefined {
    return this.#snapshot.inquiry();
  }

  override outdated(): void {
    this.#snapshot.outdated();
  }

  override answered(request: PermitRequest, answer: Answer): void {
    this.#snapshot.taken(request.taken(answer));
  }

  override recovered(send: (request: PermitRequest) => void): void {
    this.outdated();
    super.recovered(send);
  }

  override abandon(): Iterable<PermitRequest> {
    this.#snapshot.close();
    return super.abandon();
  }
}
