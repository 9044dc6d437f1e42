/** Rules that limit the bytes per second of responses. */
import { type KeyedLimiter, RateLimiter, smoothBursty } from "smooth-limiter";
import type { Report } from "./actors/guarded.ts";
import { keyOfActor } from "./actors/key.ts";
import type { ActorResolver } from "./actors/resolver.ts";
import type { Pace } from "./answers/checker.ts";
import { CompiledRule } from "./compiled-rule.ts";
import { all, chain, type Maybe } from "./ground/maybe.ts";
import type { RuleContext } from "./limits.ts";
import type { GatewayRequest } from "./request.ts";
import type { RateNumbers, RateRule } from "./rules/rule.ts";

/** The rate of an actor's responses together. */
interface SharedRate extends RateNumbers {
  readonly limiters: KeyedLimiter;
}

/** A rule for the bytes of responses that is in force, with its limiters. */
export class ActiveRate extends CompiledRule<RateRule> {
  readonly #context: RuleContext;
  readonly own: SharedRate;
  readonly overrides: ReadonlyMap<string, SharedRate>;

  /** @param before the rule with the same name: responses of the same actors go on at the new rate */
  constructor(rule: RateRule, context: RuleContext, before: ActiveRate | undefined) {
    super(rule, context);
    const { name, actor, overrides } = rule;
    this.#context = context;
    const kin = before?.rule.actor === actor ? before : undefined;
    const open = ({ bytesPerSecond, afterBytes }: RateNumbers, was?: SharedRate): SharedRate => {
      const policy = smoothBursty({ permitsPerSecond: bytesPerSecond });
      was?.limiters.update(policy);
      // a response under way must not fail because there are too many actors
      const options = { ...context.inProcess, name, whenFull: "evict" } as const;
      const limiters = was?.limiters ?? context.keys.create(policy, options);
      return { bytesPerSecond, afterBytes, limiters };
    };
    this.own = open(rule, kin?.own);
    this.overrides = new Map(
      overrides.map((each) => [each.value, open(each, kin?.overrides.get(each.value))]),
    );
  }

  /** Returns the pace of a response that has the rate for itself. */
  ownPace(): Pace {
    const { bytesPerSecond, afterBytes } = this.rule;
    const { clock } = this.#context;
    return { limiter: RateLimiter.create(bytesPerSecond, { clock }), afterBytes };
  }

  /** Returns the pace that all responses of an actor share. */
  paceOf(actor: string, isKnown: boolean): Pace {
    const { limiters, afterBytes } = (isKnown && this.overrides.get(actor)) || this.own;
    return { limiter: limiters.for(keyOfActor(actor, isKnown, "local")), afterBytes };
  }
}

/**
 * Returns the paces of a response.
 *
 * @param rules those that apply to its request
 */
export function pacesOf(
  rules: readonly ActiveRate[],
  actors: ActorResolver,
  request: GatewayRequest,
  report?: Report,
): Maybe<readonly Pace[]> {
  // it has no body
  if (request.method === "HEAD") return [];
  const paces = rules.map((active) => {
    const { actor, rule, isExempt } = active;
    // each response has the rate for itself
    if (actor === undefined) return active.ownPace();
    return actors.resolve({ actor, rule, isExempt }, request, report, (value, isKnown) =>
      active.paceOf(value, isKnown),
    );
  });
  return chain(all(paces), (known) => known.filter((pace) => pace !== undefined));
}
