/**
 * The slots of a concurrency limiter, as the supply of its queue. When a slot is free again depends on who holds
 * it, so no instant is promised while too few are free.
 */
import { checkNumber, wholeAtLeastOne } from "../ground/check.ts";
import { PermitsExceedCapacityError } from "../ground/errors.ts";
import { Deadlines, type Due } from "../queue/deadlines.ts";
import { type Supply, UNKNOWN } from "../queue/supply.ts";

export class Slots implements Supply {
  limit: number;
  /** How many are held. */
  active: number;
  /** Since when no fewer have been free, while callers wait, µs. */
  #freeSince = 0;

  constructor(limit: number, active = 0) {
    this.limit = limit;
    this.active = active;
  }

  /** A request for more than a limit that was lowered meanwhile is let in alone: it would wait for ever. */
  earliest(from: number, slots: number): number {
    const isFree = this.active + slots <= this.limit || this.active === 0;
    return isFree ? Math.max(from, this.#freeSince) : UNKNOWN;
  }

  take(_at: number, slots: number): void {
    this.active += slots;
  }

  deadlines<Item extends Due>(): Deadlines<Item> {
    return new Deadlines();
  }

  /** Frees slots, or changes the limit, at `now`. */
  change(now: number, freed: number, limit = this.limit): void {
    this.active -= freed;
    this.limit = limit;
    this.#freeSince = now;
  }

  /** Checks how many slots a call asks for. @param most how many it may ask for */
  amount(slots: unknown, most = this.limit): number {
    const checked = checkNumber("slots", slots, wholeAtLeastOne);
    if (checked > most) throw new PermitsExceedCapacityError("concurrency", checked, most);
    return checked;
  }

  shift(by: number): void {
    this.#freeSince += by;
  }

  copy(): Slots {
    const copy = new Slots(this.limit, this.active);
    copy.#freeSince = this.#freeSince;
    return copy;
  }
}
