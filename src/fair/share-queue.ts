/**
 * Fair queueing: requests of several shares wait for one server, here for a limiter, and are served in
 * proportion to the weights of the shares.
 *
 * Each request gets a *start tag* and a *finish tag*, which are counted in permits per weight:
 *
 *     finish = start + permits / weight
 *     start  = f                              if its share was served since it last had no waiter
 *            = max(f, u + permits / weight)   if it was not
 *
 * where f is the finish tag of the request that its share was served last, v is the virtual time, which is the
 * start tag of the request that was served last of all, and u is what v was when the share began to wait. The
 * request with the lowest start tag is served next; of equal ones the one that was made first. This is
 * start-time fair queueing (P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queuing", 1996) with one change: there
 * a share that begins to wait starts at v itself.
 *
 * **Why by start tags.** The other candidate was self-clocked fair queueing (S. J. Golestani, 1994), where v
 * is the *finish* tag in service. Both are exact for every algorithm, because they never ask how fast the
 * server is: a limiter stands still in a pause, bursts out of its storage, and changes its rate. Their
 * bounds are equal. They differ where a tenant takes 1000 permits at once from an idle limiter (prepayment).
 * With finish tags v jumps by 1000 for all shares, so all shares pay the debt. With start tags only the
 * share of that tenant is 1000 ahead of v, and all others go before it until they have caught up.
 *
 * **Why the change.** Where shares are tenants, new ones may come without end. If each of them started at v,
 * v would stand still as long as they come, and a share that is ahead of v by one request would starve. With
 * the change a new share is served as late as one that has just been served, so v advances with each
 * request: before a request with the start tag s the queue serves at most
 * n × w × (s − v) permits and one request of each share, for n shares with waiters and their largest weight w.
 *
 * **Requests that leave.** u and f belong to the share, not to its requests. So a request that leaves before it is
 * served changes nothing, except that its share has waited while it did: the next request of the share starts as
 * if it had come first. (If each request had its own u, a share whose callers give up and call again would never
 * be served, although it always has a waiter.) Where a larger request has left, u + permits / weight may be
 * before v. The next one then starts at v, since its share must not catch up on what others were served.
 *
 * **The bound.** Let two shares i and j have waiters during the whole of an interval in which they are served
 * W_i and W_j permits. With their weights w and the largest requests l of each, those that leave included:
 *
 *     | W_i / w_i − W_j / w_j |  ≤  l_i / w_i + l_j / w_j
 *
 * Proof. Let v run from v1 to v2 in the interval. No head has a start tag before v: the lowest one is served
 * next, and no head gets one before v, behind a request that was served or one that has left. So
 * what is served has start tags from v1 to v2, and within a share each start tag is at least the finish tag
 * before it: W_j / w_j ≤ v2 − v1 + l_j / w_j. On the other hand share i has a start tag of at most
 * v1 + l_i / w_i: f and u + l_i / w_i are at most that, and where a request leaves, v is at most its tag, so the
 * next one has at most that, too. The share's later start tags follow without a gap, and at the end its head is
 * at v2 or behind: W_i / w_i ≥ v2 − v1 − l_i / w_i. Subtract.
 *
 * Worked example: weights 1, requests of 1, A has four waiters (start tags 1, 2, 3, 4), and v = 0. B comes
 * with two: 1 and 2. Served: A1 B1 A2 B2 A3 A4. Had A taken 3 permits at once before, its finish tag would
 * be 3 ahead, and B1 and B2 would go first.
 *
 * A share without waiters costs nothing, except that the finish tags of up to `REMEMBERED` shares are kept
 * until the server is idle: those that are furthest ahead of v.
 */
import { Heap } from "../ground/heap.ts";
import { type FairEntry, Share } from "./fair-entry.ts";

/** How many shares without waiters are remembered at most. */
const REMEMBERED = 1000;

/** A share, or its copy in a forecast. */
type Headed<Item> = Pick<Share<Item>, "first" | "since" | "finish" | "start">;

function isBefore<Item>(a: Headed<Item>, b: Headed<Item>): boolean {
  if (a.start !== b.start) return a.start < b.start;
  return (a.first as FairEntry<Item>).number < (b.first as FairEntry<Item>).number;
}

/** The start tag of the next request of a share. */
function startOf<Item>(
  share: Headed<Item>,
  { cost }: FairEntry<Item>,
  virtualTime: number,
): number {
  const { since, finish, start } = share;
  if (since === undefined) return finish;
  // `min`: see "Requests that leave"; its last start tag may be before v, if others were served in advance
  return Math.max(finish, since + cost, Math.min(start, virtualTime));
}

export class ShareQueue<Item> {
  readonly #heap = new Heap<Share<Item>>(isBefore);
  /** Those with requests, and those that owe something. */
  readonly #shares = new Map<string, Share<Item>>();
  #virtualTime = 0;
  #arrivals = 0;
  /** Since when no request was served while requests waited: an instant of the caller. */
  since = 0;

  /** The request that is served next. */
  get head(): FairEntry<Item> | undefined {
    return this.#heap.first?.first;
  }

  /** The shares with requests, in no order. */
  get shares(): readonly Share<Item>[] {
    return this.#heap.items;
  }

  /** The next request of a share. */
  firstOf(name: string): FairEntry<Item> | undefined {
    return this.#shares.get(name)?.first;
  }

  /** Whether a request that is made now would be the head. */
  isNext({ name, cost }: FairEntry<Item>): boolean {
    const { first, finish } = this.#shareOf(name);
    const { start = Infinity } = this.#heap.first ?? {};
    return first === undefined && Math.max(finish, this.#virtualTime + cost) < start;
  }

  append(fairEntry: FairEntry<Item>): void {
    const share = this.#enter(fairEntry);
    fairEntry.share = share;
    share.permits += fairEntry.size;
    share.add(fairEntry);
    if (share.first !== fairEntry) return;
    share.start = startOf(share, fairEntry, this.#virtualTime);
    this.#shares.set(share.name, share);
    this.#heap.push(share);
  }

  /** Removes a request that is not served. */
  remove(fairEntry: FairEntry<Item>): void {
    const share = fairEntry.share as Share<Item>;
    share.permits -= fairEntry.size;
    share.remove(fairEntry);
    fairEntry.share = undefined;
    this.#restart(share);
  }

  /** Serves the head. */
  shift(): FairEntry<Item> {
    const fairEntry = this.head as FairEntry<Item>;
    const share = fairEntry.share as Share<Item>;
    this.#serve(share, share.start, fairEntry.cost);
    this.remove(fairEntry);
    return fairEntry;
  }

  /** Serves a request without a wait. */
  charge(fairEntry: FairEntry<Item>): void {
    const share = this.#enter(fairEntry);
    this.#serve(share, startOf(share, fairEntry, this.#virtualTime), fairEntry.cost);
    this.#restart(share);
  }

  /** Undoes the service of a request that was served in advance. */
  refund({ name, cost }: FairEntry<Item>): void {
    const share = this.#shareOf(name);
    share.finish = Math.max(share.finish, this.#virtualTime) - cost;
    // those that wait now have waited behind it
    share.since = undefined;
    this.#restart(share);
  }

  /** Called when the server has been idle: no share owes anything or has a request. */
  reset(): void {
    this.#virtualTime = 0;
    if (this.#shares.size > 0) this.#shares.clear();
  }

  /** Returns the order in which the requests are served if no other comes. */
  forecast(): ShareForecast<Item> {
    return new ShareForecast(this.#heap.items, this.#virtualTime, this.since);
  }

  /** Marks the arrival of a request. */
  #enter(fairEntry: FairEntry<Item>): Share<Item> {
    this.#arrivals += 1;
    fairEntry.number = this.#arrivals;
    const share = this.#shareOf(fairEntry.name);
    if (share.first === undefined) share.since = this.#virtualTime;
    return share;
  }

  #shareOf(name: string): Share<Item> {
    return this.#shares.get(name) ?? new Share(name);
  }

  #serve(share: Share<Item>, start: number, cost: number): void {
    share.finish = start + cost;
    share.since = undefined;
    this.#virtualTime = Math.max(this.#virtualTime, start);
  }

  /** Called when a share may have another first request, or none, or another finish tag. */
  #restart(share: Share<Item>): void {
    const { first } = share;
    if (first !== undefined) {
      share.start = startOf(share, first, this.#virtualTime);
      this.#heap.update(share);
      return;
    }
    if (share.index >= 0) this.#heap.remove(share);
    if (share.finish <= this.#virtualTime) {
      this.#shares.delete(share.name);
      return;
    }
    this.#shares.set(share.name, share);
    if (this.#shares.size > this.shares.length + REMEMBERED) this.#forget();
  }

  /** Forgets the shares without requests that are least ahead, but for half of the number that is remembered. */
  #forget(): void {
    const idle = [...this.#shares.values()].filter(({ first }) => first === undefined);
    idle.sort((a, b) => a.finish - b.finish);
    for (const { name } of idle.slice(0, -REMEMBERED / 2)) this.#shares.delete(name);
  }
}

/** A share in a forecast. */
interface Entry<Item> extends Headed<Item> {
  readonly share: Share<Item>;
  first: FairEntry<Item>;
  index: number;
}

/**
 * The order in which the requests of a `ShareQueue` are served, found without a change of the queue. It
 * takes k log k steps for k requests, however many shares there are: the next one is the head of a share
 * that was looked at already, or of a child of such a share in the heap.
 */
export class ShareForecast<Item> {
  readonly #shares: readonly Share<Item>[];
  readonly #entries = new Heap<Entry<Item>>(isBefore);
  readonly #virtualTime: number;
  since: number;

  constructor(shares: readonly Share<Item>[], virtualTime: number, since: number) {
    this.#shares = shares;
    this.#virtualTime = virtualTime;
    this.since = since;
    this.#look(0);
  }

  get head(): FairEntry<Item> | undefined {
    return this.#entries.first?.first;
  }

  /** Passes the head. @param isServed `false` if it leaves the queue without a service */
  shift(isServed: boolean): void {
    const entry = this.#entries.first as Entry<Item>;
    const { share, first } = entry;
    if (first === share.first) {
      this.#look(2 * share.index + 1);
      this.#look(2 * share.index + 2);
    }
    if (isServed) {
      entry.finish = entry.start + first.cost;
      entry.since = undefined;
    }
    if (first.after === undefined) {
      this.#entries.remove(entry);
      return;
    }
    entry.first = first.after;
    // one that is not served leaves the queue now
    entry.start = startOf(entry, entry.first, this.#virtualTime);
    this.#entries.update(entry);
  }

  #look(index: number): void {
    const share = this.#shares[index];
    if (share?.first === undefined) return;
    const { first, since, finish, start } = share;
    this.#entries.push({ share, first, since, finish, start, index: -1 });
  }
}
