/** What the rules did: counted by rule, and published for each request. */
import { onNode } from "./ground/node-process.ts";
import type { GatewayRequest } from "./request.ts";
import type { Verdict } from "./verdict.ts";

/** The number of a rule's requests, by result. Their sum is the number of requests to which the rule applied. */
export interface RuleStats {
  /** Passed at once. */
  readonly passed: number;
  /** Waited under the rule, and then passed. */
  readonly waited: number;
  /** Refused by this rule; for a shadow rule those that it would have refused. */
  readonly refused: number;
  /** Granted by this rule and refused by another: they are charged to none. */
  readonly refusedElsewhere: number;
}

/** What is published on the channel `smooth-limiter-gateway:verdict`. */
export interface VerdictMessage {
  /** The request that was checked. */
  readonly request: GatewayRequest;
  /** The verdict on it. */
  readonly verdict: Verdict;
}

interface Channel {
  readonly hasSubscribers: boolean;
  publish(message: VerdictMessage): void;
}

interface Channels {
  channel(name: string): Channel;
}

/** Node's channel, where the platform has one. */
function platformChannel(): Channel | undefined {
  const channels = onNode((process) => process.getBuiltinModule?.("node:diagnostics_channel"));
  return (channels as Channels | undefined)?.channel("smooth-limiter-gateway:verdict");
}

const channel = /* @__PURE__ */ platformChannel();

type Counts = { -readonly [Key in keyof RuleStats]: RuleStats[Key] };

export class Stats {
  readonly #counts = new Map<string, Counts>();
  readonly #onVerdict: ((verdict: Verdict, request: GatewayRequest) => void) | undefined;

  constructor(onVerdict: ((verdict: Verdict, request: GatewayRequest) => void) | undefined) {
    this.#onVerdict = onVerdict;
  }

  get byRule(): Readonly<Record<string, RuleStats>> {
    return Object.fromEntries(Array.from(this.#counts, ([name, counts]) => [name, { ...counts }]));
  }

  /** Begins to count new rules from 0, and forgets those that are gone. */
  follow(names: readonly string[]): void {
    const kept = new Set(names);
    for (const name of this.#counts.keys()) if (!kept.has(name)) this.#counts.delete(name);
    for (const name of kept) {
      if (this.#counts.has(name)) continue;
      this.#counts.set(name, { passed: 0, waited: 0, refused: 0, refusedElsewhere: 0 });
    }
  }

  /** Counts and publishes a verdict, and returns it. */
  note(verdict: Verdict, request: GatewayRequest): Verdict {
    for (const { rule, allowed, decision } of verdict.outcomes) {
      // a rule that was removed while the request waited is not counted any more
      const counts = this.#counts.get(rule.name);
      if (counts === undefined) continue;
      if (!allowed) counts.refused += 1;
      else if (!verdict.allowed) counts.refusedElsewhere += 1;
      else if (decision.waitMs > 0) counts.waited += 1;
      else counts.passed += 1;
    }
    if (verdict.outcomes.length === 0 && !verdict.disputed) return verdict;
    if (channel?.hasSubscribers) channel.publish({ request, verdict });
    const onVerdict = this.#onVerdict;
    // a listener that fails must not stop the request
    if (onVerdict !== undefined) void (async () => onVerdict(verdict, request))().catch(() => {});
    return verdict;
  }
}
