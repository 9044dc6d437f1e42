import { checkText } from "../ground/check.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import { decode } from "../match/decode.ts";
import type { GatewayRequest } from "../request.ts";

/**
 * Returns the value by which a request is counted: requests with the same value share a quota.
 *
 * An actor that throws, rejects, takes longer than `actorTimeoutMs` or returns anything else has
 * failed: the request counts as one without a value.
 *
 * @param request its methods also work detached: `({ header }) => header("x-tenant")`
 * @returns any string of up to 16 384 characters; undefined or "" where the request has no value
 */
export type Actor = (request: GatewayRequest) => MaybePromise<string | undefined>;

/** How requests without a value for the rule's actor are counted. */
export type WhenActorMissing = "device" | "shared" | "skip";

/** Actors by the name that rules use. */
export type Actors = Readonly<Record<string, Actor>>;

/**
 * Creates an actor that returns the value of a header field. Clients can send any value: use it for
 * a value that was verified before, or that only its owner knows, such as an API key.
 *
 * @param name of the field
 * @returns an actor
 * @throws TypeError where the name is not a string, or empty
 * @example
 * createGateway({ actors: { account: fromHeader("x-api-key") }, … });
 */
export function fromHeader(name: string): Actor {
  const lower = checkText("name", name).toLowerCase();
  if (lower === "") throw new TypeError('name must be the name of a header field, got ""');
  return ownActor((request) => request.header(lower));
}

/**
 * Creates an actor that returns the value of a cookie, the first of that name: without quotes around it,
 * and percent-decoded, because servers accept each spelling of a value. Clients can send any value: see
 * `fromHeader`.
 *
 * @param name of the cookie
 * @returns an actor
 * @throws TypeError where the name is not a string, or empty
 * @example
 * createGateway({ actors: { account: fromCookie("session") }, … });
 */
export function fromCookie(name: string): Actor {
  if (checkText("name", name) === "") {
    throw new TypeError('name must be the name of a cookie, got ""');
  }
  return ownActor((request) => {
    for (const each of request.header("cookie")?.split(";") ?? []) {
      const at = each.indexOf("=");
      if (at < 0 || each.slice(0, at).trim() !== name) continue;
      const value = each.slice(at + 1).trim();
      return decode(/^".*"$/.test(value) ? value.slice(1, -1) : value);
    }
    return undefined;
  });
}

/** Creates an actor from the argument that a rule gives: `actor: { header: x-tenant }`. */
export type ActorKind = (argument: string) => Actor;

/** The kinds of actors that are built in. */
export const ACTOR_KINDS: Readonly<Record<string, ActorKind>> = {
  header: fromHeader,
  cookie: fromCookie,
};

const ownActors = new WeakSet<object>();

/** Marks an actor of this package: it calls a request's methods as methods and needs no proxy. */
export function ownActor<A extends Actor>(actor: A): A {
  ownActors.add(actor);
  return actor;
}

export function isOwnActor(actor: Actor): boolean {
  return ownActors.has(actor);
}
