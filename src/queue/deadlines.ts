import { Heap } from "../ground/heap.ts";

/** What may be too late: see `Waiter.deadline`. */
export interface Due {
  readonly deadline: number;
}

interface Entry<Item> extends Due {
  readonly item: Item;
  index: number;
}

/** The waiters that have a deadline, where it is not certain when they come to their turn. */
export class Deadlines<Item extends Due> {
  readonly #heap = new Heap<Entry<Item>>((a, b) => a.deadline < b.deadline);
  readonly #entries = new Map<Item, Entry<Item>>();

  /** The waiter with the earliest deadline. */
  get first(): Item | undefined {
    return this.#heap.first?.item;
  }

  add(item: Item): void {
    const { deadline } = item;
    if (deadline === Infinity) return;
    const entry = { item, deadline, index: -1 };
    this.#entries.set(item, entry);
    this.#heap.push(entry);
  }

  delete(item: Item): void {
    const entry = this.#entries.get(item);
    if (entry === undefined) return;
    this.#entries.delete(item);
    this.#heap.remove(entry);
  }
}
