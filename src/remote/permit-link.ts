import { writePolicies } from "../algorithms/index.ts";
import type { Amount } from "../ground/permits.ts";
import { type BatchCounter, BatchCounters, LostReplyError } from "../stores/batch-id.ts";
import {
  type Answer,
  AT_ONCE,
  type CombinedSubrequest,
  type StateLocation,
  type Store,
  type StoreReply,
  type StoreRequest,
} from "../stores/store.ts";
import type { SentBatch } from "./batcher.ts";
import type { Receipts } from "./grants.ts";
import { inOrder, type PermitRequest, pack, StoreCall } from "./permit-request.ts";
import type { Parts } from "./remote-options.ts";
import { StoreLink } from "./store-link.ts";
import type { Strategy } from "./strategy.ts";

/** The link of one limiter to its store. */
export class PermitLink extends StoreLink<PermitRequest, Answer> {
  readonly #store: Store;
  readonly #key: string;
  protected readonly parts: Parts;
  readonly #declared: string;
  readonly #counters: BatchCounters;

  constructor(store: Store, key: string, parts: Parts, strategy: Strategy<PermitRequest, Answer>) {
    super(store, key, parts, strategy, { mostRequests: 4096 });
    this.#store = store;
    this.#key = key;
    this.parts = parts;
    this.#declared = writePolicies(parts.declared.list, parts.limitsKeptAt);
    this.#counters = new BatchCounters(parts.callers);
  }

  override now(): number {
    return this.parts.queue.now();
  }

  override prepare(requests: readonly PermitRequest[]): readonly PermitRequest[] {
    return inOrder(super.prepare(requests));
  }

  /** An answer is undefined where the store has run the request but its reply is lost. */
  override run(
    requests: readonly PermitRequest[],
    sentAt: number,
    deadlineMs: number,
  ): Promise<readonly (Answer | undefined)[]> {
    const packed = pack(requests, this.parts.queue.lateBy);
    this.parts.queue.asking();
    return this.#run(packed, sentAt, deadlineMs, this.#counters.take());
  }

  override answered(
    sent: SentBatch<PermitRequest>,
    answers: readonly (Answer | undefined)[],
  ): void {
    super.answered(sent, answers);
    this.parts.queue.answered();
  }

  override failed(requests: readonly PermitRequest[], cause: unknown, isOverdue: boolean): void {
    super.failed(requests, cause, isOverdue);
    this.parts.queue.answered();
  }

  override answeredLate(
    sent: SentBatch<PermitRequest>,
    answers: readonly (Answer | undefined)[],
    isLatest: boolean,
  ): void {
    super.answeredLate(sent, answers, isLatest);
    this.parts.queue.answeredLate();
  }

  /** A pause of length 0 is a write that changes nothing: it shows that the store accepts writes. */
  protected override test(): Promise<unknown> {
    const deadlineMs = performance.now() + this.timeoutMs;
    return this.#run([{ verb: "pause", micros: 0 }], this.now(), deadlineMs);
  }

  #run(
    requests: readonly StoreRequest[],
    sentAt: number,
    deadlineMs: number,
    counter?: BatchCounter,
  ): Promise<readonly (Answer | undefined)[]> {
    const now = this.#storeTime(sentAt);
    const batchId = counter?.next();
    const release = () => {
      if (counter !== undefined) this.#counters.release(counter);
    };
    return this.#store.run(this.#key, this.#declared, requests, now, batchId, deadlineMs).then(
      (reply) => {
        release();
        this.#noted(reply);
        return reply.answers;
      },
      (error: unknown) => {
        release();
        if (error instanceof LostReplyError) return requests.flatMap(withoutReply);
        throw error;
      },
    );
  }

  #noted(reply: Pick<StoreReply, "inForce" | "notes" | "others">): void {
    const { activePolicies, stats } = this.parts;
    activePolicies.replied(reply);
    if (reply.others !== undefined) stats.shared(reply.others);
    stats.processes?.used();
  }

  /** Converts an instant of the limiter's clock to the time that is sent to the store. */
  #storeTime(instant: number): number | undefined {
    const { sendsTime, queue } = this.parts;
    return sendsTime ? instant + queue.epoch : undefined;
  }

  /** The location of the state, for requests to several limiters at once. */
  get location(): StateLocation | undefined {
    return this.#store.location?.(this.#key);
  }

  /** This limiter's part of a request to several limiters. */
  combinedSubrequest(): Pick<CombinedSubrequest, "declared" | "now" | "late" | "counters"> {
    const now = this.#storeTime(this.now());
    const late = this.parts.queue.lateBy;
    return { declared: this.#declared, now, late, counters: this.#counters };
  }

  /** Processes the reply to a request to several limiters. */
  replied(reply: Pick<StoreReply, "inForce" | "notes" | "others">): void {
    this.#noted(reply);
    if (!this.isUnavailable) this.parts.stats.answered();
  }

  /**
   * Resolves when the store has the permits again. During an outage it may resolve earlier: the request
   * is then kept and sent when the store is back.
   *
   * @param _instant from when the permits can be used, if that is known
   */
  returnToStore(amount: Amount, { receipts }: Receipts, _instant?: number): Promise<void> {
    const nothing = () => {};
    const call = new StoreCall<void>({
      request: () => ({ verb: "back", amount, receipts }),
      isRepeatable: false,
      promisedUntil: Math.max(0, ...receipts),
      result: nothing,
      here: nothing,
    });
    this.send(call);
    return call.promise;
  }
}

/** Verbs that need their answers. The others are done once the store has run them. */
const ASKING: ReadonlySet<string> = new Set(["reserve", "decide", "peek", "deficit"]);

function countOf(request: StoreRequest): number {
  return request.verb === "reserve" ? request.count : 1;
}

/** Returns the answers to a request if the store has run it but the reply is lost. */
function withoutReply(request: StoreRequest): readonly (Answer | undefined)[] {
  const answer = ASKING.has(request.verb) ? undefined : { ...AT_ONCE, writtenUnder: "" };
  return Array.from({ length: countOf(request) }, () => answer);
}
