import type { PolicyList } from "../../stores/policies.ts";
import type { PolicyState } from "../../stores/policy-state.ts";
import type { Meter } from "../meter.ts";
import type { InForce } from "./in-force.ts";
import type { OutageStats } from "./outage-stats.ts";
import type { RemoteOptions } from "./remote-options.ts";
import type { WaitLine } from "./wait-line.ts";

/** What all parts of one limiter share. */
export interface Parts extends RemoteOptions {
  readonly declared: PolicyList;
  /** The policies' names and bounds; the state itself is in the store. */
  readonly policyState: PolicyState;
  readonly line: WaitLine;
  readonly inForce: InForce;
  readonly meter: Meter;
  readonly stats: OutageStats;
}
