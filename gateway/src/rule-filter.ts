/**
 * Decides a request by the rules of all kinds. First it takes its places under the rules for
 * connections; a request that waits for its turn holds them meanwhile. Then the rules for requests per
 * time decide. If they refuse, or fail, the places are free again. A request that passes gets the paces of
 * its response.
 */
import type { Clock } from "smooth-limiter";
import type { Report } from "./actors/guarded.ts";
import type { ActorResolver } from "./actors/resolver.ts";
import { ConnectionFilter, type Entry } from "./connection-filter.ts";
import { Filter } from "./filter.ts";
import { chain, type Maybe, orElse } from "./ground/maybe.ts";
import type { GatewayRequest } from "./request.ts";
import { type ActiveRate, pacesOf } from "./response-rates.ts";
import type { RefusingRule } from "./rules/rule.ts";
import type { RuleSet, RulesByKind } from "./ruleset.ts";
import { DISPUTED, isRefusal, refused, type Verdict, withOutcomes } from "./verdict.ts";

export class RuleFilter {
  readonly #actors: ActorResolver;
  readonly #requests: Filter;
  readonly #connections: ConnectionFilter;

  constructor(actors: ActorResolver, clock: Clock | undefined) {
    this.#actors = actors;
    this.#requests = new Filter(actors, clock);
    this.#connections = new ConnectionFilter(actors);
  }

  check(rules: RuleSet, request: GatewayRequest, report?: Report): Maybe<Verdict> {
    const applying = rules.match(request);
    if (applying === undefined) return DISPUTED;
    const { requests, connections, rates } = applying;
    if (connections.length === 0) {
      const verdict = this.#requests.check(requests, request, report);
      if (rates.length === 0) return verdict;
      return chain(verdict, (known) => this.#withPaces(rates, known, request, report));
    }
    return chain(this.#connections.enter(connections, request, report), (entry) =>
      entry.isRefused
        ? refused(entry.outcomes)
        : this.#checkInside(applying, entry, request, report),
    );
  }

  /** Returns what `check` would return now, without charging any rule. */
  peek(rules: RuleSet, request: GatewayRequest): Maybe<Verdict> {
    const applying = rules.match(request);
    if (applying === undefined) return DISPUTED;
    const { requests, connections } = applying;
    const peek = () => this.#requests.peek(requests, request);
    if (connections.length === 0) return peek();
    return chain(this.#connections.peek(connections, request), (outcomes) =>
      outcomes.some(isRefusal)
        ? refused(outcomes)
        : chain(peek(), (verdict) => withOutcomes<RefusingRule>(verdict, outcomes)),
    );
  }

  /** Rejects all waiting requests, and later ones that would have to wait. */
  rejectWaiting(): void {
    this.#requests.rejectWaiting();
  }

  /** Decides a request that has its places. */
  #checkInside(
    { requests, rates }: RulesByKind,
    { outcomes, leave }: Entry,
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Verdict> {
    return orElse(
      () =>
        chain(this.#requests.check(requests, request, report), (verdict) => {
          if (!verdict.allowed) leave();
          return this.#withPaces(
            rates,
            withOutcomes<RefusingRule>(verdict, outcomes),
            request,
            report,
          );
        }),
      (error) => {
        leave();
        throw error;
      },
    );
  }

  #withPaces(
    rates: readonly ActiveRate[],
    verdict: Verdict,
    request: GatewayRequest,
    report?: Report,
  ): Maybe<Verdict> {
    if (rates.length === 0 || !verdict.allowed) return verdict;
    return chain(pacesOf(rates, this.#actors, request, report), (paces) =>
      paces.length === 0 ? verdict : { ...verdict, paces },
    );
  }
}
