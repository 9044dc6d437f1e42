/**
 * Calls to a store share trips: those of one turn of the event loop, and those that arrive while a
 * trip is under way, travel together in the order in which they came. Each is answered within
 * `timeoutMs` of asking, be it by an error; what a late reply grants to somebody who has been told
 * so is given back.
 */
import { LONGEST_TIMEOUT_MS } from "../clock.ts";
import { StoreUnavailableError } from "../errors.ts";
import { type Amount, sameAmount } from "../permits.ts";
import type { Answer, Store, StoreReply, StoreRequest } from "../stores/store.ts";

/** A script keeps everybody else waiting while it runs: more calls than this take the next trip. */
const LONGEST_TRIP = 4096;

/**
 * Pauses before a store that is away is tried again, ms: each twice the one before, and jittered.
 */
const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 1000;

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
  fail(error: StoreUnavailableError): void;
  /** The store is away. @returns whether it wants to be asked for again */
  delayed(): boolean;
}

export interface TripOptions {
  readonly name: string;
  readonly timeoutMs: number;
  /** Calls wait for a store that is away, instead of failing. */
  readonly patient: boolean;
  /** The limiter's clock, microseconds. */
  readonly now: () => number;
  /** Added to that it is the time which the store goes by; absent: the store has its own clock. */
  readonly epoch: number | undefined;
  /** How late our own timer was for those who ask now, microseconds. */
  readonly lateBy: () => number;
}

export interface Arrival {
  readonly answer: Answer;
  /** When the trip left, by the limiter's clock, microseconds. */
  readonly sentAt: number;
}

/** Some calls on their way. */
interface Trip {
  readonly calls: readonly Call[];
  readonly sentAt: number;
  overdue: boolean;
}

export class Trips {
  readonly #store: Store;
  readonly #key: string;
  readonly #declared: string;
  readonly #options: TripOptions;
  #inForce: string;

  #queue: Call[] = [];
  /** When the first call of each trip that is queued asked, ms. */
  #asked: number[] = [];
  /**
   * Nothing leaves while this holds: a trip is about to leave, is under way, or the store is given
   * a pause.
   */
  #blocked = false;
  /** Calls wait for the store to come back. */
  #away = false;
  #pauseMs = FIRST_PAUSE_MS;

  constructor(store: Store, key: string, declared: string, options: TripOptions) {
    this.#store = store;
    this.#key = key;
    this.#declared = declared;
    this.#inForce = declared;
    this.#options = options;
  }

  /** The numbers in force, as the last reply told them. */
  get inForce(): string {
    return this.#inForce;
  }

  ask(call: Call): void {
    if (this.#queue.length % LONGEST_TRIP === 0) this.#asked.push(performance.now());
    this.#queue.push(call);
    if (this.#away) call.delayed();
    this.#leaveSoon();
  }

  /**
   * Sends a request. What it takes is given back if the answer comes too late.
   *
   * @param taken what it takes when it is granted
   * @param longest the longest wait with which it is granted, microseconds
   */
  send(
    request: (late: number) => StoreRequest,
    taken: Amount = 0,
    longest = Number.MAX_VALUE,
  ): Promise<Arrival> {
    const undo = (answer: Answer) => {
      if (taken !== 0 && answer.wait >= 0 && answer.wait <= longest) this.giveBack(taken, answer);
    };
    const message = new Message(request, undo);
    this.ask(message);
    return message.answered;
  }

  /** What was granted is not wanted. Nobody waits for this; if it fails, the permits are lost. */
  giveBack(amount: Amount, { receipts }: Answer): void {
    const message = new Message(
      () => ({ verb: "back", amount, receipts }),
      () => {},
      false,
    );
    this.ask(message);
    message.answered.catch(() => {});
  }

  /**
   * With the microtasks of this turn, so that all calls of the turn are there and a lone one is not
   * held up.
   */
  #leaveSoon(): void {
    if (this.#blocked || this.#queue.length === 0) return;
    this.#blocked = true;
    queueMicrotask(() => this.#leave());
  }

  #leave(): void {
    const calls = this.#queue.splice(0, LONGEST_TRIP).filter((call) => !call.gone);
    const [asked = 0] = this.#asked.splice(0, 1);
    if (calls.length === 0) this.#unblock();
    else this.#travel(calls, asked);
  }

  #travel(calls: readonly Call[], asked: number): void {
    const { now, epoch, lateBy, timeoutMs } = this.#options;
    const trip: Trip = { calls, sentAt: now(), overdue: false };
    const timeout = setTimeout(
      () => {
        trip.overdue = true;
        this.#fail(trip);
      },
      Math.min(LONGEST_TIMEOUT_MS, asked + timeoutMs - performance.now()),
    );
    this.#store
      .run(
        this.#key,
        this.#declared,
        pack(calls, lateBy()),
        epoch === undefined ? undefined : trip.sentAt + epoch,
      )
      .finally(() => clearTimeout(timeout))
      .then(
        (reply) => this.#arrive(trip, reply),
        (error) => {
          if (!trip.overdue) this.#fail(trip, error);
        },
      );
  }

  #arrive({ calls, sentAt, overdue }: Trip, { inForce, answers }: StoreReply): void {
    this.#inForce = inForce;
    calls.forEach((call, i) => {
      const answer = answers[i] as Answer;
      if (overdue || call.gone) call.undo(answer);
      else call.answer(answer, sentAt);
    });
    if (overdue) return;
    this.#pauseMs = FIRST_PAUSE_MS;
    this.#away = false;
    this.#unblock();
  }

  #fail({ calls }: Trip, cause?: unknown): void {
    const { name, timeoutMs, patient } = this.#options;
    const error = new StoreUnavailableError(name, timeoutMs, cause);
    const waits = (call: Call) => {
      if (call.gone) return false;
      if (patient && call.delayed()) return true;
      call.fail(error);
      return false;
    };
    const waiting = calls.filter(waits);
    if (patient) this.#queue = [...waiting, ...this.#queue.filter(waits)];
    this.#away = patient && this.#queue.length > 0;
    if (!this.#away) {
      this.#unblock();
      return;
    }
    setTimeout(() => this.#resume(), this.#pauseMs * (0.5 + Math.random()));
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2);
  }

  #resume(): void {
    const trips = Math.ceil(this.#queue.length / LONGEST_TRIP);
    this.#asked = new Array(trips).fill(performance.now());
    this.#unblock();
  }

  #unblock(): void {
    this.#blocked = false;
    this.#leaveSoon();
  }
}

/** A request whose answer is a promise's; nobody waits for longer than the answer takes. */
class Message implements Call {
  readonly gone = false;
  readonly #patient: boolean;
  readonly request: (late: number) => StoreRequest;
  readonly undo: (answer: Answer) => void;
  answer!: (answer: Answer, sentAt: number) => void;
  fail!: (error: StoreUnavailableError) => void;
  readonly answered = new Promise<Arrival>((resolve, reject) => {
    this.answer = (answer, sentAt) => resolve({ answer, sentAt });
    this.fail = reject;
  });

  /** @param patient whether it is asked for again when the store is back */
  constructor(
    request: (late: number) => StoreRequest,
    undo: (answer: Answer) => void,
    patient = true,
  ) {
    this.request = request;
    this.undo = undo;
    this.#patient = patient;
  }

  delayed(): boolean {
    return this.#patient;
  }
}

/** The requests of the calls; neighbours that reserve the same become one with a count. */
function pack(calls: readonly Call[], late: number): StoreRequest[] {
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
