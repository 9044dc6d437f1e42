/**
 * The reserve of a region in a store, as a second supply of those who wait for a part.
 *
 * All callers of a key wait in one line, that of the part. While one of them waits, the reserve is asked for what the
 * head of the line needs, in the store's own line and for one at a time. When it grants that, whoever is the head then goes
 * with it; the part may have served the others meanwhile. When no caller waits any more, the place in the store is given up.
 * So no caller waits in two lines, those of one process keep their order, and each is counted once.
 *
 * Where it is inexact: what the reserve does for the callers behind the head is not known. A call with a time-out that the
 * part cannot serve in time is refused, unless the reserve has its permits at once.
 */
import type { RemoteLimiter, Reservation } from "../api/limiter-api.ts";
import { OutageStats } from "../api/outage-stats.ts";
import { CallStats } from "../api/stats.ts";
import type { Timer } from "../ground/clock.ts";
import { type Amount, sameAmount, sizeOf } from "../ground/permits.ts";
import { correct } from "../queue/reservation.ts";
import type { Waiter } from "../queue/waiter.ts";
import { open } from "../redis/options.ts";
import { KeyedRemoteLimiter } from "../remote/keyed-remote-limiter.ts";
import { checkShared, type SharedOptions } from "../remote/remote-options.ts";
import type { PolicyList } from "../stores/policies.ts";
import type { RedisClient } from "../stores/redis/client.ts";
import { luaTwins } from "../stores/redis/lua.gen.ts";
import type { LuaTwin } from "../stores/redis/lua-twin.ts";
import type { Store } from "../stores/store.ts";
import { partsOf } from "./move.ts";
import { isStore } from "./options.ts";
import type { Part } from "./part.ts";

/** Calls are counted, and published, by the part. */
class Uncounted extends CallStats {
  override enqueued(): void {}
  override released(): void {}
  override granted(): void {}
  override refused(): void {}
  override expired(): void {}
  override ended(): void {}
  override cancelled(): void {}
}

class ReserveStats extends OutageStats {
  override callStats(names: readonly string[]): CallStats {
    return new Uncounted({ limiter: "" }, names);
  }
}

/** Returns the limiter of a fraction of the policies in a store, which counts no calls. */
export function openReserve(
  local: Store | RedisClient,
  name: string,
  { names, list }: PolicyList,
  fraction: number,
  options: Pick<SharedOptions, "prefix" | "clock">,
): KeyedRemoteLimiter {
  const part = { names, list: partsOf(list, fraction) };
  const outageStats = new ReserveStats(name);
  if (isStore(local)) {
    const { prefix, key, options: checked } = checkShared(name, part, options);
    return new KeyedRemoteLimiter(local, prefix + key, part, { ...checked, outageStats });
  }
  const twins = list.map(({ algorithm }) => luaTwins[algorithm.name] as LuaTwin);
  const [store, key, , checked] = open(local, name, part, twins, options);
  return new KeyedRemoteLimiter(store, key, part, { ...checked, outageStats });
}

/** The reservations in the reserve with which callers went: what they have used is settled there. */
const payers = new WeakMap<object, Reservation>();

/** @param reservation of a part @returns the one in the reserve that has served it; undefined: the part has */
export function payerOf(reservation: Reservation): Reservation | undefined {
  return payers.get(reservation);
}

/** What the reserve is for one part while callers wait for it. */
export class Feed {
  readonly #part: Part;
  readonly #reserve: () => RemoteLimiter;
  readonly #lack: () => void;
  readonly #pauseMs: number;
  /** Whether no caller waits any more: those who come later need another one. */
  isOver = false;
  /** The place in the store's line, also while it is asked for, and for what. */
  #place = new AbortController();
  #asked: Amount = 0;
  #resume: (() => void) | undefined;
  /** Whether the reserve does not serve the head at once. */
  #isRefused = false;
  readonly #looking: (() => void)[] = [];

  /**
   * @param lack called when the reserve does not serve a caller at once
   * @param pauseMs after an error
   */
  constructor(part: Part, reserve: () => RemoteLimiter, lack: () => void, pauseMs: number) {
    this.#part = part;
    this.#reserve = reserve;
    this.#lack = lack;
    this.#pauseMs = pauseMs;
  }

  /** Serves the callers of the part until none waits. */
  async run(): Promise<void> {
    for (let head = this.#head; head !== undefined; head = this.#head) {
      if (sizeOf(head.amount) > 0) await this.#serve(head.amount);
      else await this.#letPay(head);
    }
    this.isOver = true;
    this.#answered();
  }

  /** Resolves when the reserve has served those who wait now, or lets the first one wait. */
  looked(): Promise<void> {
    return new Promise((resolve) => {
      if (this.isOver || this.#isRefused) resolve();
      else this.#looking.push(resolve);
    });
  }

  /** A caller has come, or left, or needs less. If the head is another one by now, the reserve is asked again. */
  changed(): void {
    const head = this.#head;
    if (head === undefined || !sameAmount(head.amount, this.#asked)) this.renew();
  }

  /** The place is given up, and the reserve is asked again: it was reset or paused, or has other numbers. */
  renew(): void {
    this.#isRefused = false;
    this.#place.abort();
    this.#resume?.();
  }

  get #head(): Waiter | undefined {
    const { callers, queue } = this.#part;
    queue.catchUp();
    return callers > 0 ? queue.head : undefined;
  }

  /** Asks for the amount. Whatever the store does, it is asked again while a caller waits. */
  async #serve(amount: Amount): Promise<void> {
    const place = new AbortController();
    this.#place = place;
    this.#asked = amount;
    this.#isRefused = false;
    try {
      // without the signal: what is granted at once would be lost
      const reservation = await this.#reserve().reserve(this.#part.permitsOf(amount));
      if (reservation.waitMs > 0) {
        this.#refused();
        await reservation.ready({ signal: place.signal });
      }
      await this.#hand(reservation, amount);
    } catch {
      if (place.signal.aborted) return;
      this.#refused();
      await this.#pause();
    }
  }

  #refused(): void {
    this.#isRefused = true;
    this.#lack();
    this.#answered();
  }

  #answered(): void {
    for (const resolve of this.#looking.splice(0)) resolve();
  }

  /**
   * Lets the head go with the permits of the reservation. What it does not need is not given back, neither now nor when
   * it settles: that could lower a later window.
   */
  async #hand(reservation: Reservation, amount: Amount): Promise<void> {
    const head = this.#head;
    if (head === undefined || !contains(amount, head.amount)) return;
    const { taken } = head;
    const isMore = !contains(amount, taken);
    if (isMore || sameAmount(amount, taken)) payers.set(head, reservation);
    this.#letGo(head);
    if (!isMore) return;
    try {
      await reservation.settle(this.#part.permitsOf(taken));
    } catch {
      payers.delete(head);
      correct(this.#part.queue, amount, taken);
    }
  }

  /** Lets a head go that needs nothing any more. It may have settled for more since. */
  async #letPay(head: Waiter): Promise<void> {
    const { taken } = head;
    this.#letGo(head);
    if (sizeOf(taken) === 0) return;
    const paid = this.#reserve().charge(this.#part.permitsOf(taken));
    await paid.catch(() => this.#part.queue.charge(taken));
  }

  #letGo(head: Waiter): void {
    const { queue } = this.#part;
    queue.remove(head, queue.last);
    head.release(queue.last, queue.last);
  }

  async #pause(): Promise<void> {
    let timer: Timer | undefined;
    await new Promise<void>((resolve) => {
      this.#resume = resolve;
      timer = this.#part.wakeAt(this.#part.now() + this.#pauseMs, resolve);
    });
    timer?.cancel();
  }
}

function contains(whole: Amount, part: Amount): boolean {
  if (typeof whole === "number" || typeof part === "number") return Number(part) <= Number(whole);
  return part.every((permits = 0, i) => permits <= (whole[i] ?? 0));
}
