import type { Limiter } from "smooth-limiter";
import { checkOptions } from "../ground/check.ts";
import type { Host } from "./host.ts";
import { HOST_OPTIONS, HostFilter } from "./host-filter.ts";
import {
  type HostLimitOptions,
  LIMIT_OPTIONS,
  type LimiterByKey,
  type LimitOptions,
} from "./limit-options.ts";
import { OneCallLimit } from "./one-call-limit.ts";

/** Puts a limit without rules in front of a host. */
export function limitFilter<Call, Result, Raw>(
  host: Host<Call, Result>,
  limiter: Limiter | LimiterByKey,
  options: HostLimitOptions<Raw>,
): HostFilter<Call, Result> {
  checkOptions("options", options, { ...LIMIT_OPTIONS, ...HOST_OPTIONS, ...host.options });
  const limit = new OneCallLimit(limiter, options as LimitOptions);
  return new HostFilter(host, limit, options, true);
}
