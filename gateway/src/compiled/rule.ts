import { exemption } from "../actors/exemption.ts";
import type { GuardedActor, Report } from "../actors/guarded.ts";
import type { Maybe } from "../ground/maybe.ts";
import type { RuleContext } from "../limits.ts";
import { isHost } from "../match/host.ts";
import { certainlyBelow } from "../match/pattern.ts";
import type { GatewayRequest } from "../request.ts";
import type { AnyRule } from "../rules/rule.ts";

/** Goes on with the value by which a rule counts a request. @param isKnown whether it is the actor's own */
type Resolved<T> = (
  actor: string,
  isKnown: boolean,
  request: GatewayRequest,
  report: Report | undefined,
) => Maybe<T>;

/** A rule that is in force: the requests to which it applies, and its actor. */
export abstract class CompiledRule<R extends AnyRule = AnyRule> {
  readonly rule: R;
  /** Whether it applies to every request to its paths. */
  readonly isForAll: boolean;
  protected readonly context: RuleContext;
  /** Undefined for a rule that counts each response for itself. */
  readonly #actor: GuardedActor | undefined;
  readonly #isExempt: (value: string, request: GatewayRequest) => boolean;
  readonly #exceptions: readonly ((target: string) => boolean)[];

  constructor(rule: R, context: RuleContext) {
    const { actor, exempt, methods, hosts, except } = rule;
    this.rule = rule;
    this.context = context;
    this.#actor = actor === undefined ? undefined : context.actor(actor);
    this.#isExempt = this.#actor ? exemption(exempt, this.#actor, actor === "device") : () => false;
    this.isForAll = !methods && !hosts && except.length === 0;
    this.#exceptions = except.map(certainlyBelow);
  }

  /** Whether it applies to a request to its paths. */
  includes({ method, url }: GatewayRequest, hosts: () => readonly string[]): boolean {
    const wanted = this.rule.hosts;
    return (
      this.#hasMethod(method) &&
      !this.#exceptions.some((isBelow) => isBelow(url)) &&
      (wanted === undefined || hosts().some((host) => wanted.some((each) => isHost(each, host))))
    );
  }

  /** GET includes HEAD, which servers answer in the same way. */
  #hasMethod(method: string): boolean {
    const { methods } = this.rule;
    if (methods === undefined) return true;
    const asked = method.toUpperCase();
    return methods.includes(asked) || (asked === "HEAD" && methods.includes("GET"));
  }

  /**
   * Finds by what the rule counts a request.
   *
   * @param go receives the value, and whether it is the actor's own or a replacement for a missing one
   * @returns undefined if the rule does not apply to the request
   */
  protected resolve<T>(
    request: GatewayRequest,
    report: Report | undefined,
    go: Resolved<T>,
  ): Maybe<T | undefined> {
    const value = this.#actor?.(request, report);
    return value instanceof Promise
      ? value.then((later) => this.#with(later, request, report, go))
      : this.#with(value, request, report, go);
  }

  #with<T>(
    value: string | undefined,
    request: GatewayRequest,
    report: Report | undefined,
    go: Resolved<T>,
  ): Maybe<T | undefined> {
    if (value) return this.#isExempt(value, request) ? undefined : go(value, true, request, report);
    return this.rule.actor === "all"
      ? go("", true, request, report)
      : this.context.missing(this.rule.whenActorMissing, request, report, (instead) =>
          go(instead, false, request, report),
        );
  }
}
