/**
 * Warns if requests contradict `trustedProxies`. A wrong number causes no visible error: behind an
 * undeclared proxy all clients count as one, and with a declared proxy that does not exist clients
 * can choose their address.
 */
import type { GatewayRequest } from "../request.ts";
import type { ForwardedField } from "./forwarded.ts";
import { warn } from "./warn.ts";

/** A proxy adds its field to nearly every request, but not to its own health checks. */
const REQUESTS_LOOKED_AT = 1000;
const REQUESTS_WITHOUT = 20;

export class ProxyCheck {
  readonly #trustedProxies: number;
  readonly #field: ForwardedField;
  #requests = 0;
  #isDone = false;

  constructor(trustedProxies: number, field: ForwardedField) {
    this.#trustedProxies = trustedProxies;
    this.#field = field;
  }

  look(request: GatewayRequest): void {
    if (this.#isDone) return;
    this.#requests += 1;
    if (this.#trustedProxies === 0) this.#lookForProxy(request);
    else this.#lookForField(request);
  }

  #lookForProxy(request: GatewayRequest): void {
    const fields: readonly ForwardedField[] = ["x-forwarded-for", "forwarded"];
    const found = fields.find((field) => request.header(field) !== undefined);
    this.#isDone = found !== undefined || this.#requests >= REQUESTS_LOOKED_AT;
    if (found === undefined) return;
    warn(
      "SMOOTH_LIMITER_UNTRUSTED_PROXY",
      `a request has the header ${found}, but trustedProxies is 0: if a proxy of yours adds it, all clients behind it count as one, so set trustedProxies to how many stand in front; if clients connect directly, the header is theirs and ignoring it is right`,
    );
  }

  #lookForField(request: GatewayRequest): void {
    const isThere = request.header(this.#field) !== undefined;
    this.#isDone = isThere || this.#requests >= REQUESTS_WITHOUT;
    if (isThere || !this.#isDone) return;
    warn(
      "SMOOTH_LIMITER_MISSING_PROXY",
      `trustedProxies is ${this.#trustedProxies}, but none of the first ${this.#requests} requests has the header ${this.#field}: if clients connect directly they can choose their address with it, so set trustedProxies to 0; if the proxy adds another field, say which`,
    );
  }
}
