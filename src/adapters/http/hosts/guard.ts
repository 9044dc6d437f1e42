/**
 * What all servers have in common: asks the filter, and says what is to be done. Each server's own
 * adapter shows it the request and carries that out.
 */
import { checkOptions, show } from "../../../check.ts";
import { ReservationCancelledError } from "../../../errors.ts";
import {
  ANSWER_OPTIONS,
  type Answer,
  type AnswerOptions,
  type AnswerStyle,
  checkAnswer,
  checkAnswerOptions,
  refusal,
  unavailable,
} from "../answers/answer.ts";
import { type Field, fieldsOf } from "../answers/fields.ts";
import type { Screen, Screened } from "../answers/screen.ts";
import type { GatewayRequest } from "../request.ts";

type Maybe<T> = T | Promise<T>;

/** A request as the adapters of servers show it. */
export interface HostRequest extends GatewayRequest {
  /** Whether it was answered already, or its client has gone. */
  readonly isOver: boolean;
}

/** What a filter has said about a request, and what the filters before it have said. */
interface Seen {
  readonly screen: Screen;
  readonly request: GatewayRequest;
  readonly verdict: Maybe<Screened>;
  readonly before: Seen | undefined;
}

const SEEN = Symbol("smooth-limiter");

/** What becomes of a request that the filter cannot decide about. */
export type OnError = "allow" | "refuse";

export interface HostOptions extends AnswerOptions {
  /**
   * What happens to a request when the filter itself fails: Redis is away, say. It goes on
   * (`"allow"`, the default), it is answered 503 (`"refuse"`), or a function is given the error and
   * returns which of the two. A function that throws makes the error the server's: a 500.
   *
   * A function is also given what an actor of yours throws, and its result is then ignored: the
   * request counts as one without a value for that actor, and the rules decide.
   */
  readonly onError?:
    | OnError
    | ((error: unknown, request: GatewayRequest) => Maybe<OnError>)
    | undefined;
}

export const HOST_OPTIONS = [...ANSWER_OPTIONS, "onError"] as const;

/** What is to be done; undefined: nothing, the request is over. */
export type Ruling = Passage | Refusal | undefined;

/** The request goes on, and its answer gets these header fields. */
interface Passage {
  readonly fields: readonly Field[];
  readonly answer?: undefined;
}

interface Refusal {
  readonly answer: Answer;
}

export class Guard {
  readonly #screen: Screen;
  readonly #style: AnswerStyle;
  readonly #onError: OnError | ((error: unknown, request: GatewayRequest) => Maybe<OnError>);
  /** For what does not change the ruling. */
  readonly #report: ((error: unknown, request: GatewayRequest) => void) | undefined;

  constructor(screen: Screen, options: HostOptions, more: readonly string[] = []) {
    checkOptions("options", options, [...HOST_OPTIONS, ...more]);
    if (typeof (Object(screen) as Partial<Screen>).check !== "function") {
      throw new TypeError(`gateway must be what createGateway made, got ${show(screen)}`);
    }
    const { onError = "allow" } = options;
    if (typeof onError !== "function" && onError !== "allow" && onError !== "refuse") {
      throw new TypeError(`onError must be allow, refuse or a function, got ${show(onError)}`);
    }
    this.#screen = screen;
    this.#style = checkAnswerOptions(options);
    this.#onError = onError;
    if (typeof onError !== "function") return;
    this.#report = (error, request) => void this.#judge(error, request).catch(() => {});
  }

  /**
   * Never throws; rejects where `onError` throws. A request that is over is neither counted nor
   * served: its client's address may be unknown by now.
   *
   * @param carrier the server's own request, which the verdict is kept with
   */
  ask(request: HostRequest, carrier: object): Maybe<Ruling> {
    if (request.isOver) return undefined;
    try {
      const told = this.#check(request, carrier);
      if (!(told instanceof Promise)) return this.#rule(told, request);
      return told
        .then((verdict) => (request.isOver ? undefined : this.#rule(verdict, request)))
        .catch((error) => this.#fault(error, request));
    } catch (error) {
      return this.#fault(error, request);
    }
  }

  /** A filter that is mounted twice counts a request once: the second one repeats the first. */
  #check(request: GatewayRequest, carrier: { [SEEN]?: Seen }): Maybe<Screened> {
    const before = carrier[SEEN];
    for (let seen = before; seen !== undefined; seen = seen.before) {
      const { url, method } = seen.request;
      // a copy of a request that goes to another route is a request of its own
      if (seen.screen === this.#screen && url === request.url && method === request.method) {
        return seen.verdict;
      }
    }
    const verdict = this.#screen.check(request, this.#report);
    carrier[SEEN] = { screen: this.#screen, request, verdict, before };
    return verdict;
  }

  #rule(verdict: Screened, request: GatewayRequest): Ruling {
    const { dialects, status, answer } = this.#style;
    const fields = fieldsOf(verdict, dialects);
    if (verdict.allowed) return { fields };
    const usual = refusal(verdict, status, fields);
    if (answer === undefined) return { answer: usual };
    try {
      return { answer: checkAnswer(answer(usual, verdict, request)) };
    } catch (error) {
      // refused it is: only the words are missing
      this.#report?.(error, request);
      return { answer: usual };
    }
  }

  async #fault(error: unknown, request: HostRequest): Promise<Ruling> {
    if (request.isOver) return undefined;
    // it stood in a line when the gateway was closed: all at once is no way to empty that
    if (error instanceof ReservationCancelledError) return { answer: unavailable() };
    const word = await this.#judge(error, request);
    return word === "refuse" ? { answer: unavailable() } : { fields: [] };
  }

  async #judge(error: unknown, request: GatewayRequest): Promise<OnError> {
    const onError = this.#onError;
    return typeof onError === "function" ? onError(error, request) : onError;
  }
}
