/** The interface of a filter, and of the results from which responses are made. */
import type { Decision, Limiter } from "smooth-limiter";
import type { GatewayRequest } from "../request.ts";
import type { RequestRule } from "../rules/rule.ts";

/** A filter of requests: a `Gateway`, or what `limitRequests`, `limitConnections` and `limitRate` return. */
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
  /** Whether the request may pass: all rules let it, shadow rules aside. */
  readonly allowed: boolean;
  /**
   * When to retry, ms: all checked rules would let the request pass then, if no other request came.
   * 0 when allowed; `Infinity` if a limit is 0, or if the target is disputed.
   */
  readonly retryMs: number;
  /**
   * Whether the request is refused, with a status of 400, because servers disagree on the path of its
   * target, and the paths have different rules. No rule is then asked or charged. Absent: it is not.
   */
  readonly disputed?: boolean | undefined;
  /** One for each policy. Policies in mode "shadow" are not reported to the client. */
  readonly outcomes: readonly PolicyOutcome[];
  /**
   * How fast the response may be sent, if the request passes, one for each rule with `bytesPerSecond`
   * that applies; absent if none does. The server adapters apply them.
   */
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
  /** Whether this rule lets the request pass. A shadow rule that does not is only reported. */
  readonly allowed: boolean;
  /**
   * The state of the rule: after the charge if the request passes, without it if it is refused. If
   * the request has waited under this rule, `waitMs` is the wait that was computed on arrival.
   */
  readonly decision: Decision;
}
