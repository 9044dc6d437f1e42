/**
 * Wraps an actor of the application for the filter, and other functions that are called for each
 * request. The wrapped actor always settles with a text or nothing. An actor that throws, rejects,
 * takes too long or returns something else has failed: the error is reported, and the request counts
 * as one without a value. So a broken token does not exempt a request from other rules.
 */
import { show } from "../ground/check.ts";
import { isThenable, type MaybePromise } from "../ground/maybe-promise.ts";
import { type Deadline, within } from "../ground/within.ts";
import type { CheckCall, GatewayRequest } from "../request.ts";
import { type Actor, isOwnActor } from "./actor.ts";
import { addressOf, withAddress } from "./address.ts";
import { checkValue } from "./key.ts";
import { warn } from "./warn.ts";

export type GuardedActor = GuardedCall<string>;

/** A function of the application, wrapped: it settles with a value, or undefined if it has failed. */
export type GuardedCall<T, Rest extends readonly unknown[] = readonly []> = (
  call: CheckCall,
  ...rest: Rest
) => MaybePromise<T | undefined>;

/** The deadline is that of the function's promise. */
export interface GuardOptions<T> extends Deadline {
  /** The function's name, for messages. */
  readonly name: string;
  /** The consequence of a failure, for the warning: "the request counts as …". */
  readonly instead: string;
  /** Returns the value, checked; throws if it cannot be used. */
  readonly read: (value: unknown) => T | undefined;
}

/** Wraps an actor. One for addresses does not fail. */
export function guarded(name: string, actor: Actor, deadline: Deadline): GuardedActor {
  const address = addressOf(actor);
  if (address !== undefined) return withAddress(({ request }) => actor(request), address);
  const seen = isOwnActor(actor) ? (request: GatewayRequest) => request : detachable;
  const instead = "the request counts as one without a value";
  const read = (value: unknown) => textOf(name, value);
  return guardedCall((request) => actor(seen(request)), {
    name,
    instead,
    read,
    ...deadline,
  });
}

/** Wraps a function of the application that is called for each request. */
export function guardedCall<T, Rest extends readonly unknown[] = readonly []>(
  apply: (request: GatewayRequest, ...rest: Rest) => unknown,
  { name, instead, read, ...deadline }: GuardOptions<T>,
): GuardedCall<T, Rest> {
  let hasWarned = false;

  const failed = (error: unknown, { request, report }: CheckCall) => {
    if (report !== undefined) {
      report(error, request);
    } else if (!hasWarned) {
      hasWarned = true;
      warn(
        "SMOOTH_LIMITER_ACTOR_FAILED",
        `${name} failed, so ${instead}: ${readable(error)}. Further failures are not reported; pass a function as onError to see all of them`,
      );
    }
    return undefined;
  };

  return (call, ...rest) => {
    try {
      const value = apply(call.request, ...rest);
      if (!isThenable(value)) return read(value);
      return within(value, deadline)
        .then(read)
        .catch((error: unknown) => failed(error, call));
    } catch (error) {
      return failed(error, call);
    }
  };
}

/** Returns an error as a text: functions of the application may throw anything. */
function readable(error: unknown): string {
  try {
    return String(error);
  } catch {
    return "an error that cannot be read";
  }
}

/** @throws TypeError for anything else: all objects would otherwise share one key; RangeError if it is too long */
function textOf(name: string, value: unknown): string | undefined {
  if (typeof value === "string") return checkValue(name, value);
  if (value === undefined || value === null) return undefined;
  throw new TypeError(`${name} must return a text or undefined, got ${show(value)}`);
}

/** Returns a request with methods that also work when they are detached. */
export function detachable(request: GatewayRequest): GatewayRequest {
  return new Proxy(request, DETACHABLE);
}

/** Lets a request's methods work when they are detached: `({ header }) => header("x")`. */
const DETACHABLE: ProxyHandler<GatewayRequest> = {
  get(request, key) {
    const value: unknown = Reflect.get(request, key, request);
    // a proxy of a frozen object must return the property itself
    return typeof value === "function" && !Object.isFrozen(request) ? value.bind(request) : value;
  },
};
