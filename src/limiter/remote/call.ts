/** What is asked of a store elsewhere, by whom, and how it is packed for the journey. */
import { type Amount, sameAmount } from "../../permits.ts";
import type { Answer, StoreRequest } from "../../stores/store.ts";

/** One question to the store and what becomes of it. */
export interface Call {
  /** Given up meanwhile: it need not travel. */
  readonly gone: boolean;
  /** @param late how late our own timer was, microseconds */
  request(late: number): StoreRequest;
  /** @param sentAt when the trip left, by the limiter's clock, microseconds */
  answer(answer: Answer, sentAt: number): void;
  /** The answer came too late: what it grants is to be given back. */
  undo(answer: Answer): void;
  fail(error: Error): void;
  /** Of a grant that is given back: up to which instant permits were promised with it. */
  readonly tail?: number | undefined;
  /** The store is away. */
  delayed(): void;
  /** It may travel again where it is not known whether it has arrived. */
  readonly repeatable: boolean;
}

/** A call that asks for permits. */
export interface Taker extends Call {
  readonly amount: Amount;
  /** How much longer it accepts to wait, microseconds. */
  readonly patience: number;
}

export interface Arrival {
  readonly answer: Answer;
  /** When the trip left, by the limiter's clock, microseconds. */
  readonly sentAt: number;
}

/**
 * A request whose answer is a promise's; nobody waits for longer than the answer takes. `heard` is
 * told at once, before those whose calls come later in the trip.
 */
export class Message implements Call {
  readonly gone = false;
  readonly repeatable: boolean;
  readonly tail: number | undefined;
  readonly request: (late: number) => StoreRequest;
  readonly undo: (answer: Answer) => void;
  answer!: (answer: Answer, sentAt: number) => void;
  fail!: (error: Error) => void;
  delayed: () => void = () => {};
  readonly answered: Promise<Arrival>;

  constructor(
    request: (late: number) => StoreRequest,
    undo: (answer: Answer) => void,
    repeatable: boolean,
    tail?: number,
    heard: (answer: Answer) => void = () => {},
  ) {
    this.answered = new Promise((resolve, reject) => {
      this.answer = (answer, sentAt) => {
        heard(answer);
        resolve({ answer, sentAt });
      };
      this.fail = reject;
    });
    this.request = request;
    this.undo = undo;
    this.repeatable = repeatable;
    this.tail = tail;
  }
}

/**
 * What is given back goes before those who ask, the last one first: only the last of those who were
 * promised something leaves no gap.
 */
export function inOrder(calls: readonly Call[]): readonly Call[] {
  const back = calls.filter(({ tail }) => tail !== undefined);
  if (back.length === 0) return calls;
  back.sort((a, b) => Number(b.tail) - Number(a.tail));
  return [...back, ...calls.filter(({ tail }) => tail === undefined)];
}

/** The requests of the calls; neighbours that reserve the same become one with a count. */
export function pack(calls: readonly Call[], late: number): StoreRequest[] {
  const requests: StoreRequest[] = [];
  let last: StoreRequest | undefined;
  for (const call of calls) {
    const request = call.request(late);
    if (
      last?.verb === "reserve" &&
      request.verb === "reserve" &&
      request.longest === last.longest &&
      sameAmount(request.amount, last.amount)
    ) {
      last.count += 1;
    } else {
      requests.push(request);
      last = request;
    }
  }
  return requests;
}
