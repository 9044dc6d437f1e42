/**
 * Divides the keys that a gateway may hold in this process among the tables of its rules.
 *
 * A table may have what the others leave, but always its equal part: a rule under attack by invented actors takes
 * what is free, and gives back two keys for each new one when others need their part. So all tables together hold at
 * most `maxKeys`, and at most twice as many while one gives back; each has room for one key in any case.
 */
import { KeyedLimiter, type KeyedLimiterOptions, type Policy } from "smooth-limiter";

/** With many tables their sizes are added up only at every so many new keys. */
const CALLS_A_SUM = 16;
const FEW_TABLES = 64;

export class KeyBudget {
  readonly #maxKeys: number;
  /** A table goes with the last version of the rules that has it. */
  #tables: WeakRef<KeyedLimiter>[] = [];
  /** With that many tables those that are gone are removed. */
  #most = FEW_TABLES;
  #used = 0;
  #calls = 0;

  constructor(maxKeys: number) {
    this.#maxKeys = maxKeys;
  }

  /** Creates a table of limiters whose keys count. */
  create(policy: Policy, options: Omit<KeyedLimiterOptions, "maxKeys">): KeyedLimiter {
    const maxKeys = () => this.#mostOf(table);
    const table: KeyedLimiter = KeyedLimiter.create(policy, { ...options, maxKeys });
    this.#tables.push(new WeakRef(table));
    if (this.#tables.length > this.#most) {
      this.#add();
      this.#most = 2 * this.#tables.length;
    }
    return table;
  }

  #mostOf(table: KeyedLimiter): number {
    this.#calls += 1;
    if (this.#tables.length <= FEW_TABLES || this.#calls % CALLS_A_SUM === 0) this.#add();
    const part = Math.floor(this.#maxKeys / this.#tables.length);
    return Math.max(1, part, this.#maxKeys - (this.#used - table.size));
  }

  #add(): void {
    const tables = this.#tables.flatMap((each) => each.deref() ?? []);
    this.#used = tables.reduce((sum, { size }) => sum + size, 0);
    if (tables.length < this.#tables.length) {
      this.#tables = this.#tables.filter((each) => each.deref() !== undefined);
    }
  }
}
