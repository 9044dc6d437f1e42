import { type Reading, readings, readRulePath } from "./readings.ts";

interface Node<T> {
  readonly items: T[];
  readonly below: Map<string, Node<T>>;
}

/**
 * Items by path: one of "/" holds for everything, one of "/sample" for "/sample" and what is below.
 * A request costs the length of its path, however many items there are.
 */
export class PathTree<T> {
  readonly #root: Node<T> = newNode();

  /** @param path with which the item's paths begin */
  add(path: string, item: T): void {
    let node = this.#root;
    for (const segment of readRulePath(path)) {
      const next = node.below.get(segment) ?? newNode<T>();
      node.below.set(segment, next);
      node = next;
    }
    node.items.push(item);
  }

  /**
   * @param target of a request, as the client sent it
   * @returns what holds for it, in any reading, the outermost first and each once
   */
  match(target: string): readonly T[] {
    // what holds for everything needs no reading
    if (this.#root.below.size === 0) return this.#root.items;
    const [first = [], ...others] = readings(target);
    const found = this.#along(first);
    if (others.length === 0) return found;
    return [...new Set([found, ...others.map((reading) => this.#along(reading))].flat())];
  }

  #along(reading: Reading): readonly T[] {
    let node = this.#root;
    let found: readonly T[] = node.items;
    for (const segment of reading) {
      const next = node.below.get(segment);
      if (next === undefined) break;
      if (next.items.length > 0) found = found.length > 0 ? [...found, ...next.items] : next.items;
      node = next;
    }
    return found;
  }
}

function newNode<T>(): Node<T> {
  return { items: [], below: new Map() };
}
