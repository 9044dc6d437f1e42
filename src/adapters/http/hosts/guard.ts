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

/** What becomes of a request that the filter cannot decide about. */
export type OnError = "allow" | "refuse";

export interface HostOptions extends AnswerOptions {
  /**
   * What happens to a request when the filter itself fails: an actor of yours throws, say. It goes
   * on (`"allow"`, the default), it is answered 503 (`"refuse"`), or a function hears of the error
   * and says which of the two. A function that throws makes the error the server's: a 500.
   */
  readonly onError?:
    | OnError
    | ((error: unknown, request: GatewayRequest) => Maybe<OnError>)
    | undefined;
}

export const HOST_OPTIONS = [...ANSWER_OPTIONS, "onError"] as const;

/** What is to be done; undefined: nothing, the client has gone away. */
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

  constructor(screen: Screen, options: HostOptions, more: readonly string[] = []) {
    checkOptions("options", options, [...HOST_OPTIONS, ...more]);
    if (screen instanceof Promise) {
      throw new TypeError(
        "gateway must be what createGateway made, got a promise of it: await createGateway(…) first",
      );
    }
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
  }

  /** Never throws; rejects where `onError` throws. */
  ask(request: GatewayRequest): Maybe<Ruling> {
    try {
      const told = this.#screen.check(request);
      if (!(told instanceof Promise)) return this.#rule(told, request);
      return told
        .then((verdict) => this.#rule(verdict, request))
        .catch((error) => this.#fault(error, request));
    } catch (error) {
      return this.#fault(error, request);
    }
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
      void this.#judge(error, request).catch(() => {});
      return { answer: usual };
    }
  }

  async #fault(error: unknown, request: GatewayRequest): Promise<Ruling> {
    if (request.signal?.aborted) return undefined;
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
