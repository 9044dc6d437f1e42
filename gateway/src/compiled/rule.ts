import type { ActorValue } from "../actors/actor-value.ts";
import { exemption } from "../actors/exemption.ts";
import type { GuardedActor } from "../actors/guarded.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import { isHost } from "../match/host.ts";
import { certainlyBelow } from "../match/pattern.ts";
import type { CheckCall, GatewayRequest } from "../request.ts";
import type { RuleContext } from "../rule-limiters.ts";
import type { AnyRule } from "../rules/rule.ts";

/** Goes on with the value by which a rule counts a request. */
type Resolved<T> = (actor: ActorValue, call: CheckCall) => MaybePromise<T>;

/** What a rule for all requests together counts by. */
const ALL: ActorValue = { value: "", isOwn: true };

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
   * @param go receives the value
   * @returns undefined if the rule does not apply to the request
   */
  protected resolve<T>(call: CheckCall, go: Resolved<T>): MaybePromise<T | undefined> {
    const value = this.#actor?.(call);
    return value instanceof Promise
      ? value.then((later) => this.#with(later, call, go))
      : this.#with(value, call, go);
  }

  #with<T>(
    value: string | undefined,
    call: CheckCall,
    go: Resolved<T>,
  ): MaybePromise<T | undefined> {
    if (value) {
      if (this.#isExempt(value, call.request)) return undefined;
      return go({ value, isOwn: true }, call);
    }
    return this.rule.actor === "all"
      ? go(ALL, call)
      : this.context.missing(this.rule.whenActorMissing, call, (instead) =>
          go({ value: instead, isOwn: false }, call),
        );
  }
}
