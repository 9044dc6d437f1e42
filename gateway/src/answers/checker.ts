/** The interface of a filter, and of the results from which responses are made. */
import type { Decision, Limiter } from "smooth-limiter";
import type { GatewayRequest, Report } from "../request.ts";
import type { RequestRule } from "../rules/rule.ts";

/** A filter of requests: a `Gateway`, or what `limitRequests`, `limitConnections` and `limitRate` return. */
export interface Checker {
  /** The limiter from which it takes, if it takes from one: a second use of it is noticed. */
  readonly limiter?: object | undefined;

  /** As `check` of a gateway. */
  check(request: GatewayRequest, report?: Report): CheckResult | Promise<CheckResult>;
}

/** A filter's result for a request. A `Verdict` is one. */
export interface CheckResult {
  /** Whether the request may pass. */
  readonly allowed: boolean;
  /** When to retry, ms; `Infinity` if unknown. 0 when allowed. */
  readonly retryMs: number;
  /** Whether it is refused because servers disagree on the path of its target: a status of 400. */
  readonly disputed?: boolean | undefined;
  /** One for each policy. Policies in mode "shadow" are not reported to the client. */
  readonly outcomes: readonly PolicyOutcome[];
  /** How fast the response may be sent, if it passes: the server adapters apply all of them. */
  readonly paces?: readonly Pace[] | undefined;
}

/** A limit on the bytes of a response. */
export interface Pace {
  /** Its permits are bytes. */
  readonly limiter: Limiter;
  /** How many bytes of the response are sent at once, before the limit applies. */
  readonly afterBytes: number;
}

/** The result of one policy for a request. */
export interface PolicyOutcome {
  /** What responses say about the policy. */
  readonly rule: Pick<RequestRule, "name" | "mode" | "cost"> & {
    /** Whether responses mention the rule. Undefined: they do. */
    readonly report?: boolean | undefined;
    /** What it counts, if not requests per time: "concurrent-requests". */
    readonly quotaUnit?: string | undefined;
  };
  /** Whether it lets the request pass. */
  readonly allowed: boolean;
  /** Its state. */
  readonly decision: Decision;
}
