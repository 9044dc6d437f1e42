import { OutageStats } from "../api/outage-stats.ts";
import { CallStats } from "../api/stats.ts";
import { toMillis } from "../ground/clock.ts";
import { type Amount, combine } from "../ground/permits.ts";
import type { Payment } from "../queue/reservation.ts";
import { open } from "../redis/options.ts";
import { KeyedRemoteLimiter, type RemoteArguments } from "../remote/keyed-remote-limiter.ts";
import { change, type RemoteLimiter } from "../remote/remote-limiter.ts";
import { checkShared, type SharedOptions } from "../remote/remote-options.ts";
import type { PolicyList } from "../stores/policies.ts";
import type { RedisClient } from "../stores/redis/client.ts";
import { luaTwins } from "../stores/redis/lua.gen.ts";
import type { LuaTwin } from "../stores/redis/lua-twin.ts";
import type { Store } from "../stores/store.ts";
import { Feed } from "./feed.ts";
import { partsOf } from "./move.ts";
import { isStore } from "./options.ts";
import type { MemberOptions, Part } from "./part.ts";

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
  /** The limiters of its keys hold it by these: so it lives as long as a call is under way in one of them. */
  limiter: KeyedRemoteLimiter | undefined;

  override callStats(names: readonly string[]): CallStats {
    return new Uncounted({ limiter: "" }, names);
  }
}

/** The reserve of a region in its store, for all keys. */
export class Reserve {
  readonly #options: MemberOptions;
  readonly #open: (whole: PolicyList) => KeyedRemoteLimiter;
  readonly #lack: (part: Part) => void;
  readonly #feeds = new Map<Part, Feed>();
  #limiter: KeyedRemoteLimiter;
  /** Those that `update` has replaced: a call that is under way in one, or its outage, holds it. */
  #earlier: WeakRef<KeyedRemoteLimiter>[] = [];

  /** @param lack called when the reserve does not serve a caller of the part at once */
  constructor(
    local: Store | RedisClient,
    member: MemberOptions,
    options: Pick<SharedOptions, "prefix" | "clock">,
    lack: (part: Part) => void,
  ) {
    const { name, numbers, reserved } = member;
    this.#options = member;
    this.#open = (policies) => openReserve(local, name, policies, reserved, options);
    this.#limiter = this.#open(numbers.policies);
    this.#lack = lack;
  }

  of(key: string | undefined): RemoteLimiter {
    return key === undefined ? this.#limiter : this.#limiter.for(key);
  }

  /** Goes on with the permits that are used in the store; calls that are under way end as they would have. */
  update(whole: PolicyList): void {
    this.#earlier = this.#earlier.filter((each) => each.deref() !== undefined);
    this.#earlier.push(new WeakRef(this.#limiter));
    this.#limiter = this.#open(whole);
    for (const feed of this.#feeds.values()) feed.renew();
  }

  /** Serves those who wait for the part. */
  feed(part: Part): Feed {
    const known = this.#feeds.get(part);
    if (known !== undefined && !known.isOver) {
      known.changed();
      return known;
    }
    const feed = new Feed(
      part,
      () => this.of(part.key),
      (amount) => this.pay(part, ["charge", amount]),
      () => this.#lack(part),
      this.#options.everyMs,
    );
    this.#feeds.set(part, feed);
    void feed.run().then(() => {
      if (this.#feeds.get(part) === feed) this.#feeds.delete(part);
    });
    return feed;
  }

  /** Returns what the reserve is for those who wait for the part; undefined if none waits. */
  feedOf(part: Part): Feed | undefined {
    return this.#feeds.get(part);
  }

  /**
   * Whether it pays a charge, and not the part: without a part; and while the part is in debt by more than an interval, as
   * often as the reserve has granted a call. If the part paid for these calls, it would sink into debt without end while
   * the reserve, which owes nothing, grants more. If the reserve paid for all calls, it would be the other way round.
   */
  owes(part: Part, amount: Amount): boolean {
    if (part.fraction === 0) return true;
    if (debtMs(part, amount) <= this.#options.everyMs) part.byReserve = 0;
    if (part.byReserve === 0) return false;
    part.byReserve -= 1;
    return true;
  }

  /** Charges or refunds all of it, also more than the reserve holds: what is refunded later was charged. */
  pay(part: Part, payment: Payment): Promise<void> {
    return this.of(part.key)[change](...payment);
  }

  async close(): Promise<void> {
    const limiters = [this.#limiter, ...this.#earlier.map((each) => each.deref())];
    await Promise.all(limiters.map((limiter) => limiter?.close()));
  }
}

/** Returns for how long the part grants nothing of these policies, ms, though no caller waits. */
function debtMs({ queue }: Part, amount: Amount): number {
  const least = combine(amount, amount, (permits) => (permits > 0 ? Number.MIN_VALUE : 0));
  const now = queue.now();
  return toMillis(queue.supply.earliest(now, least) - now);
}

/** Returns the limiter of a fraction of the policies in a store, which counts no calls. */
function openReserve(
  local: Store | RedisClient,
  name: string,
  { names, list }: PolicyList,
  fraction: number,
  options: Pick<SharedOptions, "prefix" | "clock">,
): KeyedRemoteLimiter {
  const part = { names, list: partsOf(list, fraction) };
  const outageStats = new ReserveStats(name);
  const [store, key, , checked] = argumentsOf(local, name, part, options);
  // a clock that is only this process's is none for the store, which others share
  const own = { ...checked, outageStats, sendsTime: false };
  const limiter = new KeyedRemoteLimiter(store, key, part, own);
  outageStats.limiter = limiter;
  return limiter;
}

function argumentsOf(
  local: Store | RedisClient,
  name: string,
  part: PolicyList,
  options: Pick<SharedOptions, "prefix" | "clock">,
): RemoteArguments {
  if (isStore(local)) {
    const { prefix, key, options: checked } = checkShared(name, part, options);
    return [local, prefix + key, part, checked];
  }
  const twins = part.list.map(({ algorithm }) => luaTwins[algorithm.name] as LuaTwin);
  return open(local, name, part, twins, options);
}
