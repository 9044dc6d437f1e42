/**
 * The contract of a server adapter. An adapter says how its framework is read and answered; `HostFilter` decides
 * about requests, and carries the result out through these functions.
 */
import type { Answer } from "../answers/answer.ts";
import type { CheckResult, Pace } from "../answers/checker.ts";
import type { Field } from "../answers/fields.ts";
import type { Check } from "../ground/check.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import type { GatewayRequest } from "../request.ts";

/**
 * `Call` is what the framework passes to a middleware, with the way to go on: `{ req, res, next }`. `Result` is what
 * the middleware returns.
 */
export interface Host<Call, Result = void> {
  /** The options that the adapter reads itself, with their checks. */
  readonly options?: Readonly<Record<string, Check>>;
  request(call: Call): HostRequest;
  /** Whether other code, such as a time-out, has responded while the request waited. */
  isAnswered(call: Call): boolean;
  /** Adds the header fields, paces the response and lets the request go on. Errors of what follows are not caught. */
  pass(call: Call, passage: Passage): MaybePromise<Result>;
  answer(call: Call, answer: Answer): MaybePromise<Result>;
  /** Ends the call without a response, because the client has disconnected or other code has responded. */
  drop(call: Call): MaybePromise<Result>;
  /** Passes on an error that `onError` has thrown. Absent: the request is answered with a status of 500. */
  fail?(call: Call, error: unknown): MaybePromise<Result>;
  /** Puts the verdict of a limit where handlers find it. Absent: as `rateLimit` of `request.raw`. */
  attach?(call: Call, verdict: CheckResult): void;
}

/** A request as the server adapters pass it in. */
export interface HostRequest extends GatewayRequest {
  /** Whether it was answered already, or its client has disconnected. */
  readonly isOver: boolean;
  /** The object that lives as long as the request: it remembers which filters have counted it. */
  readonly carrier: object;
}

/** What the response to a request that passes gets. */
export interface Passage {
  readonly fields: readonly Field[];
  /** How fast it may be sent. */
  readonly paces?: readonly Pace[] | undefined;
}

/** The status that nginx logs for a client that has disconnected; no client receives it. */
export const CLIENT_GONE = 499;
