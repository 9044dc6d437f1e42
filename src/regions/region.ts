import { onGrid } from "../algorithms/instants.ts";
import { reportUseless } from "../algorithms/never-binds.ts";
import { checkLimiterOptions, type LimiterOptions } from "../api/options.ts";
import { OutageStats } from "../api/outage-stats.ts";
import { LimiterClosedError } from "../ground/errors.ts";
import { FIFO, orderIn } from "../queue/order.ts";
import { checkKey, checkName, refuseStrict } from "../remote/remote-options.ts";
import { WHOLE } from "../stores/ledger.ts";
import { listPolicies, type Policies, type PolicyList, renumber } from "../stores/policies.ts";
import { RoundRobin } from "../stores/round-robin.ts";
import { openPolicyState } from "../stores/state/several.ts";
import { Member } from "./member.ts";
import { partsOf } from "./move.ts";
import { LEAST, numbersOf } from "./numbers.ts";
import {
  adapterIn,
  checkRegionalOptions,
  exchangeOf,
  isStore,
  type RegionalOptions,
} from "./options.ts";
import { type MemberOptions, Part } from "./part.ts";
import { Reserve } from "./reserve.ts";

/** What the limiters of all keys of a region share. */
export class Region {
  readonly name: string;
  readonly isFair: boolean;
  readonly onFull: MemberOptions["onFull"];
  readonly member: Member;
  readonly stats: OutageStats;
  readonly #options: MemberOptions;
  readonly #declared: PolicyList;
  /** Of the limiter without a key, and of the keys. */
  readonly #whole: Part;
  readonly #parts = new Map<string, Part>();
  readonly #round = new RoundRobin(this.#parts);
  /** Of its store, if it has one. */
  readonly reserve: Reserve | undefined;
  /** No request is granted that needs a larger fraction. */
  readonly #most: number;

  constructor(name: string, policies: Policies, options: RegionalOptions) {
    this.name = checkName(name);
    this.stats = new OutageStats(name);
    const { region, weights, reserve, everyMs, leaseMs } = checkRegionalOptions(options);
    const { home, local, prefix = "l:" } = options;
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
    this.#options = {
      name,
      region,
      weights,
      numbers: numbersOf(whole, base),
      largest: openPolicyState({ names, list: partsOf(list, this.#most) }, 0, 0),
      reserve: openPolicyState({ names, list: partsOf(list, Math.max(LEAST, reserved)) }, 0, 0),
      exchange: exchangeOf(home),
      ledgerKey: `${checkKey("prefix", prefix)}${name.replace(/[%[]/g, encodeURIComponent)}%regions`,
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
    if (local === undefined) return;
    if (!isStore(local)) adapterIn("local", local);
    if (reserve === 0) return;
    const shared = { prefix, ...(options.clock === undefined ? {} : { clock }) };
    this.reserve = new Reserve(local, this.#options, shared, (part) => this.member.lack(part));
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

  /** Returns the part of a key, without a lease that is over. @throws LimiterClosedError */
  open(key: string | undefined): Part {
    this.checkOpen();
    return this.member.current(this.partOf(key));
  }

  checkOpen(): void {
    if (this.member.isClosed) throw new LimiterClosedError(this.name);
    this.member.greet();
  }

  /** Looks at the next two keys of the round: so as many are forgotten as come, if they are over. */
  #sweep(): void {
    const now = this.#options.clock.now();
    for (let i = 0; i < 2; i++) {
      const next = this.#round.next();
      if (next === undefined) return;
      const [key, part] = next;
      if (!this.member.isHot(part) && part.isForgettable(now)) this.#parts.delete(key);
    }
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
    const { base, reserved, largest, reserve } = this.#options;
    const before = this.#options.numbers;
    this.#options.numbers = numbersOf(whole, base);
    largest.resize(0, partsOf(whole.list, this.#most), 0);
    reserve.resize(0, partsOf(whole.list, Math.max(LEAST, reserved)), 0);
    for (const part of [this.#whole, ...this.#parts.values()]) this.member.current(part).renumber();
    this.member.renumber(before);
    this.reserve?.update(whole);
  }

  dismiss(key: string | undefined): void {
    const part = key === undefined ? this.#whole : this.#parts.get(key);
    part?.dismiss(new LimiterClosedError(this.name));
  }

  async close(): Promise<void> {
    const closed = this.member.close();
    const reason = new LimiterClosedError(this.name);
    for (const part of [this.#whole, ...this.#parts.values()]) part.dismiss(reason);
    await Promise.all([closed, this.reserve?.close()]);
  }
}

function allOnGrid({ names, list }: PolicyList): PolicyList {
  return { names, list: list.map(onGrid) };
}

function pick({ maxWaiting, onFull, order, clock }: RegionalOptions): LimiterOptions {
  return { maxWaiting, onFull, order, clock };
}
