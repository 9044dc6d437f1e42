import { instancesOf, type Parts } from "../remote-options.ts";
import { AllowWhenUnavailable, LocalWhenUnavailable } from "./local.ts";
import type { HereHost } from "./local-fallback.ts";
import { ThrowWhenUnavailable } from "./throw.ts";
import { WaitWhenUnavailable } from "./wait.ts";

const STRATEGIES = {
  throw: () => new ThrowWhenUnavailable(),
  wait: () => new WaitWhenUnavailable(),
  local: (parts: Parts, host: HereHost) =>
    new LocalWhenUnavailable(parts, host, instancesOf(parts.instances, parts.processes)),
  allow: (parts: Parts, host: HereHost) => new AllowWhenUnavailable(parts, host),
};

/** Returns the strategy of the limiter's `whenUnavailable`. */
export function whenUnavailable(parts: Parts, host: HereHost): ThrowWhenUnavailable {
  return STRATEGIES[parts.whenUnavailable](parts, host);
}
