import type { Amount } from "../../../ground/permits.ts";
import { AllowWhenUnavailable } from "./allow.ts";
import type { HereOptions } from "./answer-here.ts";
import { LocalWhenUnavailable } from "./local.ts";
import { type PermitStrategy, ThrowWhenUnavailable } from "./throw.ts";
import { WaitWhenUnavailable } from "./wait.ts";

const STRATEGIES = {
  throw: () => new ThrowWhenUnavailable(),
  wait: () => new WaitWhenUnavailable(),
  local: (shape: Amount, options: HereOptions) => new LocalWhenUnavailable(shape, options),
  allow: (_shape: Amount, options: HereOptions) => new AllowWhenUnavailable(options),
};

/** Returns the strategy of a `whenUnavailable` value. @param shape any amount of the limiter */
export function whenUnavailable(
  kind: keyof typeof STRATEGIES,
  shape: Amount,
  options: HereOptions,
): PermitStrategy {
  return STRATEGIES[kind](shape, options);
}
