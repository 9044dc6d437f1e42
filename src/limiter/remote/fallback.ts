/** Who answers while the store is away, if `whenUnavailable` says that somebody does. */
import type { Policy } from "../../algorithms/algorithm.ts";
import type { Clock } from "../../clock.ts";
import { StoreUnavailableError } from "../../errors.ts";
import type { Amount } from "../../permits.ts";
import { isPermanent } from "../../stores/breaker.ts";
import { openCell } from "../../stores/memory.ts";
import { OpenCell, ShareCell, type Standing } from "../../stores/stand-in.ts";
import type { Meter } from "../meter.ts";
import type { Account } from "../reservation.ts";
import type { Asker } from "./asker.ts";
import { type Settlement, StandIn } from "./stand-in.ts";

export interface FallbackOptions {
  /** Everybody is let in, or as many as the share of this process allows. */
  readonly kind: "allow" | "local";
  readonly clock: Clock;
  readonly names: readonly string[];
  /** How many processes share the limit. */
  readonly instances: () => number;
  /** The policies in force, and how the store stood when it last told. */
  readonly policies: () => readonly Policy[];
  readonly standing: () => Standing | undefined;
  /** Those who were promised instants by the store go first: the last one's, from now, microseconds. */
  readonly lastPromised: () => number;
  readonly hasRoom: (amount: Amount) => boolean;
  readonly full: (amount: Amount, policies: readonly Policy[]) => Error;
  /** Is told what is let in, and whose reservations were cancelled. */
  readonly granted: (amount: Amount) => void;
  readonly meter: Meter;
}

export class Fallback {
  readonly #options: FallbackOptions;
  #standIn: StandIn | undefined;

  constructor(options: FallbackOptions) {
    this.#options = options;
  }

  /** How many permits are waited for here. */
  get waiting(): number {
    return this.#standIn?.waiting ?? 0;
  }

  /**
   * Who stands in for a store that could not be asked.
   *
   * @param error what came of asking: thrown again, unless it is the store's being away
   * @throws PermitsExceedCapacityError where the store would say so too
   */
  for(error: unknown, amount: Amount): StandIn {
    if (!(error instanceof StoreUnavailableError) || isPermanent(error.cause)) throw error;
    this.#standIn ??= this.#open();
    this.#standIn.check(amount);
    return this.#standIn;
  }

  /** Whoever comes next finds what a new one would find. */
  get isIdle(): boolean {
    if (this.#standIn?.isIdle === false) return false;
    this.#standIn = undefined;
    return true;
  }

  remove(asker: Asker): void {
    this.#standIn?.remove(asker);
  }

  /** The store is back; undefined: nobody has asked meanwhile. */
  retire(successor: Account): Settlement | undefined {
    const standIn = this.#standIn;
    this.#standIn = undefined;
    return standIn?.retire(successor);
  }

  #open(): StandIn {
    const { kind, clock, names, instances, hasRoom, full, granted, meter } = this.#options;
    const list = this.#options.policies();
    const standing = this.#options.standing();
    const whole = openCell({ names, list }, 0, 0);
    const standIn = new StandIn({
      ...{ clock, hasRoom, full, whole, granted, meter },
      policies: list,
      fraction: () => (kind === "allow" ? 1 : 1 / instances()),
      open: (fraction, now, epoch) =>
        kind === "allow"
          ? new OpenCell(openCell({ names, list }, now, epoch))
          : ShareCell.open({ names, list }, fraction, standing, now, epoch),
    });
    standIn.holdFor(Math.max(standing?.held ?? 0, this.#options.lastPromised()));
    return standIn;
  }
}
