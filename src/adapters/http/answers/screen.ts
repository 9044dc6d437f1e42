/** What stands in front of a server, and what answers are made of: a gateway, or another filter. */
import type { Decision } from "../../../limiter/face.ts";
import type { GatewayRequest } from "../request.ts";
import type { Rule } from "../rules/rule.ts";

/** A filter of requests. A `Gateway` is one, and so is what `limitConnections` makes. */
export interface Screen {
  /** As `check` of a gateway. */
  check(
    request: GatewayRequest,
    report?: (error: unknown, request: GatewayRequest) => void,
  ): Screened | Promise<Screened>;
}

/** What a filter says about a request. A `Verdict` is that. */
export interface Screened {
  /** Whether it may pass. */
  readonly allowed: boolean;
  /** When to come back, ms; `Infinity` if nobody knows. 0 when allowed. */
  readonly retryMs: number;
  /** A policy each; those of mode "shadow" are no business of the client's. */
  readonly outcomes: readonly PolicyOutcome[];
}

/** What one policy says about a request. */
export interface PolicyOutcome {
  readonly rule: Pick<Rule, "name" | "mode" | "cost"> & {
    /** What it counts, where that is not requests in a time: "concurrent-requests". */
    readonly quotaUnit?: string | undefined;
  };
  readonly allowed: boolean;
  readonly decision: Decision;
}
