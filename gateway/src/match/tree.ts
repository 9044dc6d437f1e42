import { type Parts, plainPath, type Reading, readRulePath, readTarget } from "./readings.ts";

interface Node<T> {
  readonly items: T[];
  readonly below: Map<string, Node<T>>;
}

/**
 * Items by path: one at "/" applies everywhere, one at "/sample" to "/sample" and everything below
 * it. A lookup takes time in proportion to the length of the path, however many items there are.
 */
export class PathTree<T> {
  readonly #root: Node<T> = newNode();
  /** The segments of all paths. */
  readonly #segments = new Set<string>();

  /** @param path to which the item applies, with everything below */
  add(path: string, item: T): void {
    const segments = readRulePath(path);
    let node = this.#root;
    for (const segment of segments) {
      this.#segments.add(segment);
      const next = node.below.get(segment) ?? newNode<T>();
      node.below.set(segment, next);
      node = next;
    }
    node.items.push(item);
  }

  /**
   * @param target of a request, as the client sent it
   * @returns the items that apply to it in any reading: each once, the outermost first
   */
  match(target: string): readonly T[] {
    // without other paths the target need not be read
    if (this.#root.below.size === 0) return this.#root.items;
    const plain = plainPath(target);
    if (plain !== undefined) return this.#along(segmentsOf(plain));
    const read = readTarget(target, this.#segments);
    if (!isReadings(read)) return this.#among(read);
    const [first = [], second] = read;
    const found = this.#along(first);
    return second === undefined ? found : [...new Set([...found, ...this.#along(second)])];
  }

  /**
   * Returns the items on the way along the segments; stops where there are no items further down.
   */
  #along(segments: Iterable<string>): readonly T[] {
    let node = this.#root;
    let found: readonly T[] = node.items;
    for (const segment of segments) {
      const next = node.below.get(segment);
      if (next === undefined) break;
      if (next.items.length > 0) found = found.length > 0 ? [...found, ...next.items] : next.items;
      node = next;
    }
    return found;
  }

  /** Returns the items whose segments are all among the parts, in any order. */
  #among(parts: Parts): readonly T[] {
    const nodes = [this.#root];
    // grows during the loop: level after level
    for (const { below } of nodes) {
      if (below.size < parts.size) {
        for (const [segment, next] of below) if (parts.has(segment)) nodes.push(next);
      } else {
        for (const part of parts) {
          const next = below.get(part);
          if (next !== undefined) nodes.push(next);
        }
      }
    }
    return nodes.flatMap(({ items }) => items);
  }
}

function isReadings(read: readonly Reading[] | Parts): read is readonly Reading[] {
  return Array.isArray(read);
}

/** Yields the segments one by one, because most paths are not read to their end. */
function* segmentsOf(path: string): Generator<string> {
  for (let start = 1; start < path.length; ) {
    const slash = path.indexOf("/", start);
    const end = slash < 0 ? path.length : slash;
    yield path.slice(start, end);
    start = end + 1;
  }
}

function newNode<T>(): Node<T> {
  return { items: [], below: new Map() };
}
