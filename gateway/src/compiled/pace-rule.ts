/** Rules that limit the bytes per second of responses. */
import { type KeyedLimiter, RateLimiter, smoothBursty } from "smooth-limiter";
import { overrideOf } from "../actors/actor-value.ts";
import { keyOfActor } from "../actors/key.ts";
import type { Pace } from "../answers/checker.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import type { PaceLimit } from "../pipeline/limit.ts";
import type { CheckCall } from "../request.ts";
import type { RuleContext } from "../rule-limiters.ts";
import type { RateNumbers, RateRule } from "../rules/rule.ts";
import { CompiledRule } from "./rule.ts";

/** The rate of an actor's responses together. */
interface SharedRate extends RateNumbers {
  readonly limiters: KeyedLimiter;
}

/** A rule for the bytes of responses that is in force, with its limiters. */
export class PaceRule extends CompiledRule<RateRule> implements PaceLimit {
  readonly #own: SharedRate;
  readonly #overrides: ReadonlyMap<string, SharedRate>;

  /** @param before the rule with the same name: responses of the same actors go on at the new rate */
  constructor(rule: RateRule, context: RuleContext, before: PaceRule | undefined) {
    super(rule, context);
    const { name, actor, overrides } = rule;
    const isKin = before !== undefined && before.rule.actor === actor;
    const was = isKin ? before.#overrides : undefined;
    const open = ({ bytesPerSecond, afterBytes }: RateNumbers, old?: SharedRate): SharedRate => {
      const policy = smoothBursty({ permitsPerSecond: bytesPerSecond });
      old?.limiters.update(policy);
      // a response under way must not fail because there are too many actors
      const options = { ...context.inProcess, name, whenFull: "evict" } as const;
      const limiters = old?.limiters ?? context.keys.create(policy, options);
      return { bytesPerSecond, afterBytes, limiters };
    };
    this.#own = open(rule, isKin ? before.#own : undefined);
    this.#overrides = new Map(
      overrides.map((each) => [each.value, open(each, was?.get(each.value))]),
    );
  }

  pace(call: CheckCall): MaybePromise<Pace | undefined> {
    const { actor, bytesPerSecond, afterBytes } = this.rule;
    if (actor === undefined) {
      // each response has the rate for itself
      const { clock } = this.context;
      return { limiter: RateLimiter.create(bytesPerSecond, { clock }), afterBytes };
    }
    return this.resolve(call, (value): Pace => {
      const shared = overrideOf(this.#overrides, value) ?? this.#own;
      const limiter = shared.limiters.for(keyOfActor(value, "local"));
      return { limiter, afterBytes: shared.afterBytes };
    });
  }
}
