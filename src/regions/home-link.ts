/**
 * What a member says to the home, and how it takes the answers. Whatever the home does, its reply is used, or counted as an
 * outage: one that lasts until no key fails any more. A reply that comes after a lease is none.
 */
import { show } from "../ground/check.ts";
import {
  type LedgerMessage,
  type LedgerRecord,
  type Released,
  readLedger,
  writeMessage,
} from "../stores/ledger-text.ts";
import { DRIFT } from "./numbers.ts";
import type { MemberOptions } from "./part.ts";

/** Of a lease, or of the member as a whole: what the clock of its record shows beyond this one, ms, if that is known. */
export interface Sender {
  ahead: number | undefined;
  /** The number of the last message that was answered. */
  heard: number;
  /** It sends no more: what becomes of its last message is no outage. */
  isOver?: boolean;
}

export interface Reply {
  readonly held: number;
  readonly fresh: number;
  readonly record: LedgerRecord;
}

/** The message was not used; the time of the ledger. */
interface LateReply {
  readonly record?: undefined;
  readonly late: number;
}

const NONE = {
  answered: 0,
  held: 0,
  claim: 0,
  want: 0,
  demand: 0,
  waitedMs: 0,
  released: [] as readonly Released[],
};
/** What differs from message to message. */
type Said = Pick<LedgerMessage, "since" | "keepMs"> & Partial<typeof NONE>;

/** Called when the home has answered in time, with when it did before, and when the message was sent that it answered then. */
type Answered = (now: number, beforeMs: number, beforeSentMs: number) => void;

export class HomeLink {
  readonly id = crypto.randomUUID().replaceAll("-", "").slice(0, 12);
  /** Of the last message, whatever its key: a key that was forgotten and comes back goes on counting. */
  number = 0;
  readonly #options: MemberOptions;
  readonly #answered: Answered;
  /** How long the last two replies took, ms: one alone may be that of a slow record. */
  #tookMs: readonly [number, number] = [0, 0];
  /** When the home last answered in time, and when the last message that it has answered was sent. */
  #answeredMs = -Infinity;
  #answeredSentMs = -Infinity;
  /** Those whose last message has failed. */
  readonly #failing = new Set<Sender>();

  constructor(options: MemberOptions, answered: Answered) {
    this.#options = options;
    this.#answered = answered;
  }

  /**
   * After so long without a reply a message is sent again. A home that has too many of them replies late, and would have
   * even more if they were sent again before.
   */
  get patienceMs(): number {
    const { leaseMs } = this.#options;
    return Math.max(patienceMs(this.#options), Math.min(2 * Math.min(...this.#tookMs), leaseMs));
  }

  /**
   * Sends a message.
   *
   * @param failed called without a usable reply, with whether the message seemed too old
   */
  async send(
    sender: Sender,
    key: string,
    said: Said,
    replied: (reply: Reply) => void,
    failed: (isLate: boolean) => void,
  ): Promise<void> {
    const { exchange, clock, pool, leaseMs } = this.#options;
    const sentMs = clock.now();
    const message = this.#message(sender, said);
    const { number } = this;
    try {
      const text = await exchange(key, message);
      const now = clock.now();
      this.#tookMs = [this.#tookMs[1], now - sentMs];
      if (now >= sentMs + leaseMs) return;
      const reply = readReply(text, pool, said.held ?? 0);
      sender.ahead = (reply.record === undefined ? reply.late : reply.record.last) - now;
      sender.heard = Math.max(sender.heard, number);
      this.forget(sender);
      const [beforeMs, beforeSentMs] = [this.#answeredMs, this.#answeredSentMs];
      this.#answeredMs = now;
      this.#answeredSentMs = Math.max(beforeSentMs, sentMs);
      this.#answered(now, beforeMs, beforeSentMs);
      if (reply.record !== undefined) replied(reply);
      else failed(true);
    } catch (error) {
      if (clock.now() >= sentMs + leaseMs || number < sender.heard) return;
      this.lost(sender, error);
      failed(false);
    }
  }

  /** Counts a message that has failed. */
  lost(sender: Sender, cause: unknown): void {
    if (sender.isOver) return;
    this.#failing.add(sender);
    this.#options.stats.lost(cause);
  }

  /** The sender sends no more, or has an answer. If no other fails, the outage is over. */
  forget(sender: Sender): void {
    this.#failing.delete(sender);
    if (this.#failing.size === 0) this.#options.stats.answered();
  }

  #message({ ahead }: Sender, said: Said): readonly string[] {
    const { region, leaseMs, pool, clock, numbers } = this.#options;
    const sent = ahead === undefined ? 0 : Math.max(0, Math.floor(clock.now() + ahead));
    this.number += 1;
    return writeMessage({
      ...{ ...NONE, ...said, sent, pool, rests: Number(numbers.rests) },
      id: this.id,
      region: encodeURIComponent(region),
      number: this.number,
      leaseMs: Math.ceil(leaseMs * DRIFT),
      gapMs: gapMs(this.#options),
    });
  }
}

/** So long a reply may take of a home that has no more messages than it can answer. */
export function patienceMs({ everyMs, leaseMs }: MemberOptions): number {
  return Math.min(2 * everyMs, leaseMs / 2);
}

/** What is promised may be used after so long: an interval of the slowest clock. */
export function gapMs({ everyMs }: MemberOptions): number {
  return Math.ceil(DRIFT * everyMs);
}

/** @param least what the message has said, of which nothing can be taken away @throws TypeError if it is no reply */
function readReply(text: unknown, pool: number, least: number): Reply | LateReply {
  const reply = typeof text === "string" ? text : "";
  const [, first, second] = /^(\d+|late) (\d+)/.exec(reply) ?? [];
  const [held, fresh] = [Number(first), Number(second)];
  if (first === "late" && fresh > 0) return { late: fresh };
  if (fresh <= held && held >= least && held <= pool) {
    return { held, fresh, record: readLedger(reply.slice(reply.indexOf("\n") + 1)) };
  }
  throw new TypeError(`the home answered ${show(text)} to a region`);
}
