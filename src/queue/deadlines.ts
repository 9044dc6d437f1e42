import { Heap } from "../ground/heap.ts";
import type { Waiter } from "./waiter.ts";

interface Entry {
  readonly waiter: Waiter;
  readonly deadline: number;
  index: number;
}

/** The waiters that have a deadline, where it is not certain when they come to their turn. */
export class Deadlines {
  readonly #heap = new Heap<Entry>((a, b) => a.deadline < b.deadline);
  readonly #entries = new Map<Waiter, Entry>();

  /** The waiter with the earliest deadline. */
  get first(): Waiter | undefined {
    return this.#heap.first?.waiter;
  }

  add(waiter: Waiter): void {
    const { deadline } = waiter;
    if (deadline === Infinity) return;
    const entry = { waiter, deadline, index: -1 };
    this.#entries.set(waiter, entry);
    this.#heap.push(entry);
  }

  delete(waiter: Waiter): void {
    const entry = this.#entries.get(waiter);
    if (entry === undefined) return;
    this.#entries.delete(waiter);
    this.#heap.remove(entry);
  }
}
