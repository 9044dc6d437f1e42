import { onGrid } from "../algorithms/instants.ts";
import { reportUseless } from "../algorithms/never-binds.ts";
import type { RemoteLimiter } from "../api/limiter-api.ts";
import { checkLimiterOptions, type LimiterOptions } from "../api/options.ts";
import { OutageStats } from "../api/outage-stats.ts";
import { checkText } from "../ground/check.ts";
import { LimiterClosedError } from "../ground/errors.ts";
import { FIFO, orderIn } from "../queue/order.ts";
import type { KeyedRemoteLimiter } from "../remote/keyed-remote-limiter.ts";
import { checkName, refuseStrict } from "../remote/remote-options.ts";
import { WHOLE } from "../stores/ledger.ts";
import { listPolicies, type Policies, type PolicyList, renumber } from "../stores/policies.ts";
import { openPolicyState } from "../stores/state/several.ts";
import { Member } from "./member.ts";
import { partsOf } from "./move.ts";
import { numbersOf } from "./numbers.ts";
import {
  adapterIn,
  checkRegionalOptions,
  exchangeOf,
  isStore,
  type RegionalOptions,
} from "./options.ts";
import { type MemberOptions, Part } from "./part.ts";
import { Feed, openReserve } from "./reserve.ts";

/** What the limiters of all keys of a region share. */
export class Region {
  readonly name: string;
  readonly everyMs: number;
  readonly isFair: boolean;
  readonly onFull: MemberOptions["onFull"];
  readonly member: Member;
  readonly stats: OutageStats;
  readonly #options: MemberOptions;
  readonly #declared: PolicyList;
  /** Of the limiter without a key, and of the keys. */
  readonly #whole: Part;
  readonly #parts = new Map<string, Part>();
  readonly #feeds = new Map<Part, Feed>();
  readonly #openReserve: ((policies: PolicyList) => KeyedRemoteLimiter) | undefined;
  #local: KeyedRemoteLimiter | undefined;
  /** No request is granted that needs a larger fraction. */
  readonly #most: number;

  constructor(name: string, policies: Policies, options: RegionalOptions) {
    this.name = checkName(name);
    this.stats = new OutageStats(name);
    const { home, local, prefix = "l:" } = options;
    const { region, weights, reserve, everyMs, leaseMs } = checkRegionalOptions(options);
    this.everyMs = everyMs;
    const listed = listPolicies(policies);
    reportUseless(listed.names, listed.list);
    refuseStrict(listed);
    this.#declared = listed;
    const whole = allOnGrid(listed);
    const { names, list } = whole;
    const order = orderIn(options);
    this.isFair = order !== FIFO;
    const { maxWaiting, onFull, clock } = checkLimiterOptions({ ...pick(options), name });
    const reserved = reserve / weights.size;
    const base = local === undefined ? reserved : 0;
    const pool = WHOLE - Math.ceil(reserve * WHOLE);
    this.#most = Math.max(base + pool / WHOLE, reserved);
    if (local !== undefined) {
      if (!isStore(local)) adapterIn("local", local);
      const shared = { prefix, ...(options.clock === undefined ? {} : { clock }) };
      this.#openReserve = (policies) => openReserve(local, name, policies, reserved, shared);
      this.#local = reserve === 0 ? undefined : this.#openReserve(whole);
    }
    this.#options = {
      name,
      region,
      weights,
      numbers: numbersOf(whole, base, reserved),
      largest: openPolicyState({ names, list: partsOf(list, this.#most) }, 0, 0),
      exchange: exchangeOf(home),
      ledgerKey: `${checkText("prefix", prefix)}${name.replace(/[%[]/g, encodeURIComponent)}%regions`,
      base,
      reserved,
      pool,
      everyMs,
      leaseMs,
      clock,
      maxWaiting,
      onFull,
      order,
      stats: this.stats,
    };
    this.onFull = onFull;
    this.member = new Member(this.#options);
    this.#whole = new Part(undefined, this.#options);
  }

  reserve(key: string | undefined): RemoteLimiter | undefined {
    return key === undefined ? this.#local : this.#local?.for(key);
  }

  partOf(key: string | undefined): Part {
    if (key === undefined) return this.#whole;
    const known = this.#parts.get(key);
    if (known !== undefined) return known;
    this.#sweep();
    const part = new Part(key, this.#options);
    this.#parts.set(key, part);
    return part;
  }

  /** Looks at the two keys that were looked at longest ago: so as many are forgotten as come, if they are over. */
  #sweep(): void {
    const now = this.#options.clock.now();
    for (let i = 0; i < 2; i++) {
      const [oldest] = this.#parts;
      if (oldest === undefined) return;
      const [key, part] = oldest;
      this.#parts.delete(key);
      const isKept = this.member.isHot(part) || !part.isForgettable(now);
      if (isKept) this.#parts.set(key, part);
    }
  }

  /** Returns what the reserve is for those who wait for the part; undefined if none waits. */
  feedOf(part: Part): Feed | undefined {
    return this.#feeds.get(part);
  }

  update(policies: Policies): void {
    this.#use(renumber(this.#declared, listPolicies(policies)));
  }

  resetPolicies(): void {
    this.#use(this.#declared);
  }

  #use(listed: PolicyList): void {
    refuseStrict(listed);
    const whole = allOnGrid(listed);
    const { base, reserved } = this.#options;
    this.#options.numbers = numbersOf(whole, base, reserved);
    this.#options.largest.resize(0, partsOf(whole.list, this.#most), 0);
    for (const part of [this.#whole, ...this.#parts.values()]) this.member.current(part).renumber();
    this.member.renumber();
    if (this.#local === undefined) return;
    // it goes on with the permits that are used in the store; calls that are under way end as they would have
    this.#local = this.#openReserve?.(whole);
    for (const feed of this.#feeds.values()) feed.renew();
  }

  /** Lets the reserve serve those who wait for the part. */
  feed(part: Part): Feed {
    const known = this.#feeds.get(part);
    if (known !== undefined && !known.isOver) {
      known.changed();
      return known;
    }
    const reserve = () => this.reserve(part.key) as RemoteLimiter;
    const feed = new Feed(part, reserve, () => this.member.lack(part), this.everyMs);
    this.#feeds.set(part, feed);
    void feed.run().then(() => {
      if (this.#feeds.get(part) === feed) this.#feeds.delete(part);
    });
    return feed;
  }

  dismiss(key: string | undefined): void {
    const part = key === undefined ? this.#whole : this.#parts.get(key);
    part?.dismiss(new LimiterClosedError(this.name));
  }

  async close(): Promise<void> {
    const closed = this.member.close();
    for (const key of [undefined, ...this.#parts.keys()]) this.dismiss(key);
    await Promise.all([closed, this.#local?.close()]);
  }
}

function allOnGrid({ names, list }: PolicyList): PolicyList {
  return { names, list: list.map(onGrid) };
}

function pick({ maxWaiting, onFull, order, clock }: RegionalOptions): LimiterOptions {
  return { maxWaiting, onFull, order, clock };
}
