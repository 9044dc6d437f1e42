/** The part that all server adapters share: it asks the filter, and has the adapter carry out the result. */
import {
  ANSWER_OPTIONS,
  type Answer,
  type AnswerOptions,
  type AnswerStyle,
  answerStyle,
  checkAnswer,
  disputed,
  failure,
  refusal,
  unavailable,
} from "../answers/answer.ts";
import type { Checker, CheckResult, Pace } from "../answers/checker.ts";
import { fieldsOf } from "../answers/fields.ts";
import { type Checks, checkOptions, functionOr, show } from "../ground/check.ts";
import { isThenable, type MaybePromise } from "../ground/maybe-promise.ts";
import type { GatewayRequest, Report } from "../request.ts";
import type { Host, HostRequest, Passage } from "./host.ts";
import { warnOfSecondUse } from "./second-use.ts";

/** The result of a filter for a request, and the results of the filters before it. */
interface Seen {
  readonly checker: Checker;
  readonly request: GatewayRequest;
  readonly verdict: MaybePromise<CheckResult>;
  readonly before: Seen | undefined;
}

const SEEN = Symbol("smooth-limiter");

/** The verdicts with paces that a filter has handed out. */
const PACED = new WeakSet<CheckResult>();

/** What to do with a request if the filter fails. */
export type OnError = "allow" | "refuse";

/** The options of a filter in front of any server. */
export interface HostOptions extends AnswerOptions {
  /**
   * What to do with a request if the filter itself fails, for example because Redis is unavailable:
   * `"allow"` (the default) lets it pass, `"refuse"` responds with 503, a function receives the
   * error and returns one of the two. If the function throws, the error is the server's: a 500.
   *
   * Without `onError`, requests get a 503 if the filter fails because it was closed: a server that shuts
   * down must not let all waiting requests, and those without a limit, pass.
   *
   * A function also receives the errors of your actors. Its result is then ignored: the request
   * counts as one without a value for that actor, and the rules decide.
   */
  readonly onError?:
    | OnError
    | ((error: unknown, request: GatewayRequest) => MaybePromise<OnError>)
    | undefined;
}

export const HOST_OPTIONS: Checks<HostOptions> = {
  ...ANSWER_OPTIONS,
  onError: functionOr((_, onError) => {
    if (onError === "allow" || onError === "refuse") return;
    throw new TypeError(`onError must be allow, refuse or a function, got ${show(onError)}`);
  }),
};

/** What to do with a request; undefined: nothing, because it is over. */
type Action = (Passage & { readonly answer?: undefined }) | { readonly answer: Answer } | undefined;

/** The codes of errors after a close: the classes are of other entries, or of other copies of the package. */
const CLOSED: ReadonlySet<unknown> = new Set(["RESERVATION_CANCELLED", "LIMITER_CLOSED"]);

function byDefault(error: unknown): OnError {
  return CLOSED.has((Object(error) as { readonly code?: unknown }).code) ? "refuse" : "allow";
}

/** Puts a gateway, or another filter, in front of a host. */
export function gatewayFilter<Call, Result>(
  host: Host<Call, Result>,
  gateway: Checker,
  options: HostOptions,
): HostFilter<Call, Result> {
  checkOptions("options", options, { ...HOST_OPTIONS, ...host.options });
  return new HostFilter(host, gateway, options, false);
}

export class HostFilter<Call, Result = void> {
  readonly #host: Host<Call, Result>;
  readonly #checker: Checker;
  readonly #style: AnswerStyle;
  readonly #onError: OnError | ((error: unknown, request: GatewayRequest) => MaybePromise<OnError>);
  /** Receives errors that do not change the action. */
  readonly #report: Report | undefined;
  readonly #isLimit: boolean;

  /**
   * @param options checked
   * @param isLimit whether it is a limit without rules, whose verdict handlers find on the request
   */
  constructor(host: Host<Call, Result>, checker: Checker, options: HostOptions, isLimit: boolean) {
    if (checker instanceof Promise) {
      throw new TypeError(
        "gateway must be the result of createGateway, got a promise of it: await createGateway(…) first",
      );
    }
    if (typeof (Object(checker) as Partial<Checker>).check !== "function") {
      throw new TypeError(`gateway must be the result of createGateway, got ${show(checker)}`);
    }
    const { onError = byDefault } = options;
    this.#host = host;
    this.#checker = checker;
    this.#style = answerStyle(options);
    this.#onError = onError;
    this.#isLimit = isLimit;
    if (typeof onError !== "function" || onError === byDefault) return;
    this.#report = (error, request) => void this.#judge(error, request).catch(() => {});
  }

  /**
   * Decides about a request and has the host carry the decision out: at once, if the filter decides at once.
   * Throws, or rejects with, only errors of the host, and of what it calls when the request passes.
   */
  serve(call: Call): MaybePromise<Result> {
    const action = this.#ask(call, this.#host.request(call));
    if (!(action instanceof Promise)) return this.#carryOut(call, action);
    return action.then(
      (late) => this.#carryOut(call, late),
      (error) => this.#fail(call, error),
    );
  }

  #fail(call: Call, error: unknown): MaybePromise<Result> {
    const host = this.#host;
    if (host.fail !== undefined) return host.fail(call, error);
    return this.#carryOut(call, { answer: failure() });
  }

  #carryOut(call: Call, action: Action): MaybePromise<Result> {
    const host = this.#host;
    if (action === undefined || host.isAnswered(call)) return host.drop(call);
    return action.answer === undefined ? host.pass(call, action) : host.answer(call, action.answer);
  }

  /**
   * Asks the filter. Never throws; rejects if `onError` throws. A request that is over is neither
   * counted nor served: its client's address may be unknown by now.
   */
  #ask(call: Call, request: HostRequest): MaybePromise<Action> {
    if (request.isOver) return undefined;
    try {
      const verdict = this.#check(request, request.carrier);
      if (!(verdict instanceof Promise)) return this.#rule(verdict, call, request);
      return verdict
        .then((late) => (request.isOver ? undefined : this.#rule(late, call, request)))
        .catch((error) => this.#fault(error, request));
    } catch (error) {
      return this.#fault(error, request);
    }
  }

  /**
   * Counts a request once if the filter is mounted twice: the second call repeats the first result.
   */
  #check(request: GatewayRequest, carrier: { [SEEN]?: Seen }): MaybePromise<CheckResult> {
    const before = carrier[SEEN];
    for (let seen = before; seen !== undefined; seen = seen.before) {
      const { url, method } = seen.request;
      // a copy of a request that goes to another route is a request of its own
      if (seen.checker === this.#checker && url === request.url && method === request.method) {
        return seen.verdict;
      }
    }
    const verdict = this.#checker.check(request, this.#report);
    for (let seen = before; seen !== undefined; seen = seen.before) {
      const { limiter } = this.#checker;
      const isSecond = seen.checker !== this.#checker && seen.checker.limiter === limiter;
      if (limiter !== undefined && isSecond) warnOfSecondUse(limiter, [seen.verdict, verdict]);
    }
    carrier[SEEN] = { checker: this.#checker, request, verdict, before };
    return verdict;
  }

  #rule(verdict: CheckResult, call: Call, request: HostRequest): MaybePromise<Action> {
    const { dialects, status, answer } = this.#style;
    if (this.#isLimit && verdict.outcomes.length > 0) this.#attach(verdict, call, request);
    const fields = fieldsOf(verdict, dialects);
    if (verdict.allowed) return { fields, paces: this.#pacesOf(verdict) };
    const usual = verdict.disputed ? disputed() : refusal(verdict, status, fields);
    if (answer === undefined) return { answer: usual };
    // if it fails, the request stays refused; only the application's response is missing
    const failed = (error: unknown): Action => {
      this.#report?.(error, request);
      return { answer: usual };
    };
    try {
      const given = answer(usual, verdict, request);
      if (!isThenable(given)) return { answer: checkAnswer(given) };
      return Promise.resolve(given)
        .then((late): Action => ({ answer: checkAnswer(late) }))
        .catch(failed)
        .then((action) => (request.isOver ? undefined : action));
    } catch (error) {
      return failed(error);
    }
  }

  #attach(verdict: CheckResult, call: Call, { raw }: HostRequest): void {
    const host = this.#host;
    if (host.attach !== undefined) host.attach(call, verdict);
    else (raw as { rateLimit?: unknown }).rateLimit = verdict;
  }

  /** A filter that is mounted twice repeats its verdict, but paces the response once. */
  #pacesOf(verdict: CheckResult): readonly Pace[] | undefined {
    const { paces } = verdict;
    if (paces === undefined || PACED.has(verdict)) return undefined;
    PACED.add(verdict);
    return paces;
  }

  async #fault(error: unknown, request: HostRequest): Promise<Action> {
    if (request.isOver) return undefined;
    const word = await this.#judge(error, request);
    return word === "refuse" ? { answer: unavailable() } : { fields: [] };
  }

  async #judge(error: unknown, request: GatewayRequest): Promise<OnError> {
    const onError = this.#onError;
    return typeof onError === "function" ? onError(error, request) : onError;
  }
}
