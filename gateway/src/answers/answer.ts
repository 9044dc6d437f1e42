/** The response to a refused request. */
import { type Checks, checkFunction, checkText, oneOf, show, whole } from "../ground/check.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import type { GatewayRequest } from "../request.ts";
import type { CheckResult } from "./checker.ts";
import { DIALECTS, type Dialect, type Field, reportedViolations, seconds } from "./fields.ts";

/** A response, independent of the server. */
export interface Answer {
  /** From 100 to 599. */
  readonly status: number;
  /** Header fields by name. */
  readonly headers: Readonly<Record<string, string>>;
  /** Sent as it is. */
  readonly body: string;
}

/** What refusals and header fields look like. */
export interface AnswerOptions {
  /** The status of a refusal, from 400 to 599. Default 429; nginx uses 503. */
  readonly status?: number | undefined;
  /**
   * The dialects in which responses, refusals and others, report the state of the rules: one,
   * several, or none (`false`). Default "draft-11".
   */
  readonly headers?: Dialect | readonly Dialect[] | false | undefined;
  /**
   * Returns another response to a refused request.
   *
   * @param usual the default response
   * @param verdict the gateway's verdict with the reasons
   * @returns the response, or a promise of it, for example a changed copy of `usual`. If the function
   *   throws, or returns a response that cannot be sent, the default is sent and `onError` gets the error
   * @example
   * answer: (usual) => ({ ...usual, body: "slow down" })
   */
  readonly answer?:
    | ((usual: Answer, verdict: CheckResult, request: GatewayRequest) => MaybePromise<Answer>)
    | undefined;
}

const checkDialect = oneOf(...Object.keys(DIALECTS));

export const ANSWER_OPTIONS: Checks<AnswerOptions> = {
  status: whole(400, 599),
  headers(name, headers) {
    if (headers !== false && typeof headers !== "string" && !Array.isArray(headers)) {
      throw new TypeError(
        `headers must be a dialect, an array of them or false, got ${show(headers)}`,
      );
    }
    for (const dialect of headers === false ? [] : [headers].flat()) checkDialect(name, dialect);
  },
  answer: checkFunction,
};

export interface AnswerStyle {
  readonly status: number;
  readonly dialects: readonly Dialect[];
  readonly answer: AnswerOptions["answer"];
}

export function answerStyle(options: AnswerOptions): AnswerStyle {
  const { status = 429, headers = "draft-11", answer } = options;
  return { status, dialects: [...new Set([headers || []].flat())], answer };
}

const checkStatus = whole(200, 599);

const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/**
 * The characters that Node accepts; any other would crash the process when the response is sent.
 */
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Returns the application's response; throws an error that says why it cannot be sent. */
export function checkAnswer(answer: Answer): Answer {
  const { status, headers, body } = Object(answer) as Partial<Answer>;
  const sent = checkStatus("the status of an answer", status);
  const text = checkText("the body of an answer", body);
  for (const [name, value] of Object.entries(Object(headers))) {
    if (!FIELD_NAME.test(name))
      throw new TypeError(`an answer has a header with an invalid name: ${show(name)}`);
    if (typeof value === "string" && FIELD_VALUE.test(value)) continue;
    throw new TypeError(
      `header ${name} of an answer must be a string that can be sent, got ${show(value)}`,
    );
  }
  return { status: sent, headers: { ...headers }, body: text };
}

/** The problem types that the draft of the RateLimit fields registers. */
const PROBLEMS = "https://iana.org/assignments/http-problem-types#";

/** The response to a request that rules refuse. */
export function refusal(verdict: CheckResult, status: number, fields: readonly Field[]): Answer {
  const retryS = verdict.retryMs < Infinity ? Math.max(1, seconds(verdict.retryMs)) : undefined;
  const violated = { "violated-policies": reportedViolations(verdict) };
  return problem(status, "Too many requests", { kind: "quota-exceeded", retryS, fields }, violated);
}

/** The response to a request with a disputed target. */
export function disputed(): Answer {
  const detail =
    "The path is ambiguous: send it without dot segments, empty segments and encoded slashes";
  return problem(400, "Bad request", {}, { detail });
}

/** The response to a request that cannot be decided because the filter failed. */
export function unavailable(): Answer {
  return problem(503, "Temporarily unavailable", { kind: "temporary-reduced-capacity", retryS: 1 });
}

/** The response where the application wants a failed filter to be a server error. */
export function failure(): Answer {
  return problem(500, "Internal server error", {});
}

/** What some problems have: a registered type, header fields. */
interface ProblemParts {
  readonly kind?: string;
  readonly retryS?: number | undefined;
  readonly fields?: readonly Field[];
}

function problem(
  status: number,
  title: string,
  { kind, retryS, fields = [] }: ProblemParts,
  more: Readonly<Record<string, unknown>> = {},
): Answer {
  const type = kind === undefined ? undefined : `${PROBLEMS}${kind}`;
  return {
    status,
    headers: {
      ...Object.fromEntries(fields),
      ...(retryS !== undefined && { "Retry-After": `${retryS}` }),
      "Content-Type": "application/problem+json",
      "Cache-Control": "no-store",
    },
    // leaves an undefined type out
    body: JSON.stringify({ type, title, status, ...more }),
  };
}
