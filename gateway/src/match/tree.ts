import { ANY, readPattern } from "./pattern.ts";
import {
  hidesSlash,
  type Parts,
  plainPath,
  type Reading,
  readParts,
  readTarget,
} from "./readings.ts";

interface Node<T> {
  /** Those that apply here and everywhere below. */
  readonly items: T[];
  /** Those that apply here only. */
  readonly exact: T[];
  readonly below: Map<string, Node<T>>;
  /** The node for a segment that matches any text. */
  any: Node<T> | undefined;
}

/**
 * Items by path: one at "/" applies everywhere, one at "/sample" to "/sample" and everything below
 * it, one at "/users/:id" to everything below "/users" but not to "/users" itself. A lookup takes
 * time in proportion to the length of the path, however many items there are.
 */
export class PathTree<T> {
  readonly #root: Node<T> = newNode();
  /** The paths with a segment that may be anything, which are looked up in another way. */
  readonly #patterns: Node<T> = newNode();
  /** The segments of all paths. */
  readonly #segments = new Set<string>();
  #hasPatterns = false;

  /**
   * @param path to which the item applies
   * @param isExact whether it does not apply below the path
   */
  add(path: string, item: T, isExact = false): void {
    const segments = readPattern(path);
    const isPattern = segments.includes(ANY);
    if (isPattern) this.#hasPatterns = true;
    let node = isPattern ? this.#patterns : this.#root;
    for (const segment of segments) {
      if (segment === ANY) {
        node.any ??= newNode();
        node = node.any;
        continue;
      }
      this.#segments.add(segment);
      const next = node.below.get(segment) ?? newNode<T>();
      node.below.set(segment, next);
      node = next;
    }
    (isExact ? node.exact : node.items).push(item);
  }

  /**
   * @param target of a request, as the client sent it
   * @returns the items that apply to it in any reading: each once, the outermost first and those of
   *   patterns last
   */
  match(target: string): readonly T[] {
    const { below, exact, items } = this.#root;
    // if the only path is "/", the target need not be parsed
    if (below.size === 0 && exact.length === 0 && !this.#hasPatterns) return items;
    const plain = plainPath(target, this.#segments);
    const literal = plain === undefined ? this.#anyReading(target) : this.#along(segmentsOf(plain));
    return this.#hasPatterns ? once([literal, this.#byPattern(target, plain)]) : literal;
  }

  #anyReading(target: string): readonly T[] {
    const read = readTarget(target, this.#segments);
    if (!isReadings(read)) return among(this.#root, read);
    const [first = [], second] = read;
    const found = this.#along(first, true);
    return second === undefined ? found : once([found, this.#along(second, true)]);
  }

  /**
   * Returns the items on the way along the segments; stops where there are no items further down.
   *
   * @param isOpen whether the path may also end earlier, so that exact items apply on the way
   */
  #along(segments: Iterable<string>, isOpen = false): readonly T[] {
    let node = this.#root;
    let found: readonly T[] = isOpen ? [...node.items, ...node.exact] : node.items;
    for (const segment of segments) {
      const next = node.below.get(segment);
      if (next === undefined) return found;
      if (next.items.length > 0) found = found.length > 0 ? [...found, ...next.items] : next.items;
      if (isOpen && next.exact.length > 0) found = [...found, ...next.exact];
      node = next;
    }
    return isOpen || node.exact.length === 0 ? found : [...found, ...node.exact];
  }

  #byPattern(target: string, plain: string | undefined): readonly T[] {
    if (plain === undefined || hidesSlash(target, plain)) {
      return among(this.#patterns, readParts(target, this.#segments));
    }
    const found: T[] = [];
    let level: readonly Node<T>[] = [this.#patterns];
    for (const segment of segmentsOf(plain)) {
      level = level.flatMap(({ below, any }) => present(below.get(segment), any));
      for (const { items } of level) found.push(...items);
    }
    // a slash at the end is an empty segment to some routers
    const within = plain.endsWith("/") ? level.flatMap(({ any }) => present(any)) : [];
    for (const { items } of within) found.push(...items);
    for (const { exact } of [...level, ...within]) found.push(...exact);
    return found;
  }
}

function present<T>(...nodes: readonly (Node<T> | undefined)[]): readonly Node<T>[] {
  return nodes.filter((node) => node !== undefined);
}

/** Returns the items with literal segments that are all among the parts, in any order. */
function among<T>(root: Node<T>, parts: Parts): readonly T[] {
  const nodes = [root];
  // grows during the loop: level after level
  for (const { below, any } of nodes) {
    if (any !== undefined) nodes.push(any);
    if (below.size < parts.size) {
      for (const [segment, next] of below) if (parts.has(segment)) nodes.push(next);
    } else {
      for (const part of parts) {
        const next = below.get(part);
        if (next !== undefined) nodes.push(next);
      }
    }
  }
  return nodes.flatMap(({ items, exact }) => [...items, ...exact]);
}

function once<T>(lists: readonly (readonly T[])[]): readonly T[] {
  const [first = [], second = []] = lists;
  if (second.length === 0) return first;
  return [...new Set([...first, ...second])];
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
  return { items: [], exact: [], below: new Map(), any: undefined };
}
