/** The part that `expressLimit` and its siblings share. */
import type { Limiter } from "smooth-limiter";
import type { Checker } from "../answers/checker.ts";
import { checkOptions } from "../ground/check.ts";
import { type Attach, HOST_OPTIONS, HostFilter, type HostOptions } from "./host-filter.ts";
import { limitRequests } from "./limit.ts";
import {
  type HostLimitOptions,
  LIMIT_OPTIONS,
  type LimiterByKey,
  type LimitOptions,
} from "./limit-options.ts";

/** The place of a limit: what the server's adapter reads itself, and where handlers find the verdict. */
interface Host {
  /** Names of options of the adapter. */
  readonly more?: readonly string[];
  readonly attach?: Attach;
}

const toRequest: Attach = (raw, verdict) => {
  (raw as { rateLimit?: unknown }).rateLimit = verdict;
};

export function limitFilter<Raw>(
  limiter: Limiter | LimiterByKey,
  options: HostLimitOptions<Raw>,
  { more = [], attach = toRequest }: Host = {},
): HostFilter {
  const { limit, host } = split(limiter, options, more);
  return new HostFilter(limit, host, more, attach);
}

function split<Raw>(
  limiter: Limiter | LimiterByKey,
  options: HostLimitOptions<Raw>,
  more: readonly string[],
): { readonly limit: Checker; readonly host: HostOptions } {
  checkOptions("options", options, [...LIMIT_OPTIONS, ...HOST_OPTIONS, ...more]);
  const own = new Set<string>(LIMIT_OPTIONS);
  const part = (isOwn: boolean) =>
    Object.fromEntries(Object.entries(options).filter(([name]) => own.has(name) === isOwn));
  return { limit: limitRequests(limiter, part(true) as LimitOptions<Raw>), host: part(false) };
}
