/** The interface of a filter, and of the results from which responses are made. */
import type { Decision } from "smooth-limiter";
import type { GatewayRequest } from "../request.ts";
import type { Rule } from "../rules/rule.ts";

/** A filter of requests: a `Gateway`, or what `limitConnections` returns. */
export interface Checker {
  /** The limiter from which it takes, if it takes from one: a second use of it is noticed. */
  readonly limiter?: object | undefined;

  /** As `check` of a gateway. */
  check(
    request: GatewayRequest,
    report?: (error: unknown, request: GatewayRequest) => void,
  ): CheckResult | Promise<CheckResult>;
}

/** A filter's result for a request. A `Verdict` is one. */
export interface CheckResult {
  /** Whether the request may pass. */
  readonly allowed: boolean;
  /** When to retry, ms; `Infinity` if unknown. 0 when allowed. */
  readonly retryMs: number;
  /** One for each policy. Policies in mode "shadow" are not reported to the client. */
  readonly outcomes: readonly PolicyOutcome[];
}

/** The result of one policy for a request. */
export interface PolicyOutcome {
  readonly rule: Pick<Rule, "name" | "mode" | "cost"> & {
    /** What it counts, if not requests per time: "concurrent-requests". */
    readonly quotaUnit?: string | undefined;
  };
  readonly allowed: boolean;
  readonly decision: Decision;
}
