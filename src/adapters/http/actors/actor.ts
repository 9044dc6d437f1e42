import { checkText } from "../../../check.ts";
import type { GatewayRequest } from "../request.ts";

type Maybe<T> = T | Promise<T>;

/**
 * Whose request it is: all that have the same value are counted together.
 *
 * An actor that throws, rejects, takes longer than `actorTimeoutMs` or returns something else than a
 * text has failed: the request counts as one without a value.
 *
 * @param request whose methods also work without it: `({ header }) => header("x-tenant")`
 * @returns any text; undefined or "" where the request has none
 */
export type Actor = (request: GatewayRequest) => Maybe<string | undefined>;

export type Actors = Readonly<Record<string, Actor>>;

/**
 * An actor that a header field names. Clients send what they like: use it for what was checked
 * before, or for a value that is secret to its owner, as an API key is.
 *
 * @param name of the field
 * @returns an actor
 * @throws TypeError where the name is no text, or empty
 * @example
 * createGateway({ actors: { account: fromHeader("x-api-key") }, … });
 */
export function fromHeader(name: string): Actor {
  const lower = checkText("name", name).toLowerCase();
  if (lower === "") throw new TypeError('name must be that of a header field, got ""');
  return ownActor((request) => request.header(lower));
}

const ownActors = new WeakSet<object>();

/** Marks an actor of this package: it calls the methods of a request as methods. */
export function ownActor<A extends Actor>(actor: A): A {
  ownActors.add(actor);
  return actor;
}

export function isOwnActor(actor: Actor): boolean {
  return ownActors.has(actor);
}
