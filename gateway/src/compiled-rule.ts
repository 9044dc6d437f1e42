import { exemption } from "./actors/exemption.ts";
import type { GuardedActor } from "./actors/guarded.ts";
import type { Counting } from "./actors/resolver.ts";
import type { RuleContext } from "./limits.ts";
import { isHost } from "./match/host.ts";
import { certainlyBelow } from "./match/pattern.ts";
import type { GatewayRequest } from "./request.ts";
import type { AnyRule } from "./rules/rule.ts";

/** A rule that is in force: the requests to which it applies, and its actor. */
export abstract class CompiledRule<
  R extends AnyRule = AnyRule,
  A extends GuardedActor | undefined = GuardedActor | undefined,
> {
  readonly rule: R;
  readonly actor: A;
  readonly isExempt: Counting["isExempt"];
  /** Whether it applies to every request to its paths. */
  readonly isForAll: boolean;
  readonly #exceptions: readonly ((target: string) => boolean)[];

  constructor(rule: R, context: RuleContext) {
    const { actor, exempt, methods, hosts, except } = rule;
    const known = actor === undefined ? undefined : context.actor(actor);
    this.rule = rule;
    this.actor = known as A;
    this.isExempt = known ? exemption(exempt, known, actor === "device") : () => false;
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
}
