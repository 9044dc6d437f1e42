import { Found, type Spot } from "./found.ts";
import { ANY, type RuleSegment, readPattern } from "./pattern.ts";
import type { Piece, UnclearPiece } from "./pieces.ts";
import {
  hidesSlash,
  type Interpretations,
  interpretTarget,
  type Parts,
  plainPath,
} from "./target-interpretations.ts";

interface Node<T> extends Spot {
  /** Those that apply here and everywhere below. */
  readonly items: T[];
  /** Those that apply here only. */
  readonly exact: T[];
  readonly below: Map<string, Node<T>>;
  /** The node for a segment that matches any text. */
  any: Node<T> | undefined;
}

const ALWAYS = () => true;
const NEVER = () => false;

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
  readonly #isHarmless: (item: T) => boolean;
  #hasPatterns = false;

  /** @param isHarmless whether an item never refuses a request: it makes no target disputed */
  constructor(isHarmless: (item: T) => boolean = NEVER) {
    this.#isHarmless = isHarmless;
  }

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
        node.any ??= newNode(ANY, node);
        node = node.any;
        continue;
      }
      this.#segments.add(segment);
      const next = node.below.get(segment) ?? newNode<T>(segment, node);
      node.below.set(segment, next);
      node = next;
    }
    (isExact ? node.exact : node.items).push(item);
  }

  /**
   * Returns the items that apply to a target. If it has several interpretations, these are the items of all
   * of them, so no spelling avoids one. But one path must have them all (`/a`, `/a/b` and `/:x/b` are
   * items of `/a/b`). Otherwise a single request would use the items of many paths.
   *
   * @param target of a request, as the client sent it
   * @param applies whether an item applies to the request, whatever its path
   * @returns the items, each once, the outermost first; undefined if the target is disputed: no path
   *   has the items of all its interpretations
   */
  match(target: string, applies: (item: T) => boolean = ALWAYS): readonly T[] | undefined {
    const { below, exact, items } = this.#root;
    // if the only path is "/", the target need not be parsed
    if (below.size === 0 && exact.length === 0 && !this.#hasPatterns) {
      return filtered(items, applies);
    }
    const plain = plainPath(target, this.#segments);
    if (plain === undefined || (this.#hasPatterns && hidesSlash(target, plain))) {
      return this.#inAnyReading(target, applies);
    }
    const literal = this.#along(segmentsOf(plain));
    const found = this.#hasPatterns ? once(literal, this.#byPattern(plain)) : literal;
    return filtered(found, applies);
  }

  #inAnyReading(target: string, applies: (item: T) => boolean): readonly T[] | undefined {
    const found = new Found(applies, this.#isHarmless);
    const roots = [this.#root, this.#patterns];
    const read = interpretTarget(target, this.#segments);
    if (isParts(read)) among(roots, read, found);
    else if (!follow(roots, read.pieces, found)) among(roots, read.parts(), found);
    return found.items;
  }

  /** Returns the items on the way along the segments; stops where there are no items further down. */
  #along(segments: Iterable<string>): readonly T[] {
    let node = this.#root;
    let found: readonly T[] = node.items;
    for (const segment of segments) {
      const next = node.below.get(segment);
      if (next === undefined) return found;
      if (next.items.length > 0) found = found.length > 0 ? [...found, ...next.items] : next.items;
      node = next;
    }
    return node.exact.length === 0 ? found : [...found, ...node.exact];
  }

  #byPattern(plain: string): readonly T[] {
    const found: T[] = [];
    let level: readonly Node<T>[] = [this.#patterns];
    for (const segment of segmentsOf(plain)) {
      level = level.flatMap((node) => belowOf(node, segment));
      for (const { items } of level) found.push(...items);
    }
    // a slash at the end is an empty segment to some routers
    const within = plain.endsWith("/") ? level.flatMap(({ any }) => any ?? []) : [];
    for (const { items } of within) found.push(...items);
    for (const { exact } of [...level, ...within]) found.push(...exact);
    return found;
  }
}

function belowOf<T>({ below, any }: Node<T>, segment: string): readonly Node<T>[] {
  return [below.get(segment), any].filter((node) => node !== undefined);
}

/** Yields the nodes below with a segment that is among the parts or may be anything. */
function* belowAmong<T>({ below, any }: Node<T>, parts: Parts): Generator<Node<T>> {
  if (any !== undefined) yield any;
  // the smaller of the two is gone through
  for (const segment of below.size < parts.size ? below.keys() : parts) {
    const next = parts.has(segment) ? below.get(segment) : undefined;
    if (next !== undefined) yield next;
  }
}

/** Finds the items with literal segments that are all among the parts, in any order. */
function among<T>(roots: readonly Node<T>[], parts: Parts, found: Found<T>): void {
  const nodes = [...roots];
  // grows during the loop: level after level
  for (const node of nodes) {
    found.add(node.items, node);
    found.add(node.exact, node);
    if (found.isDisputed) return;
    for (const next of belowAmong(node, parts)) nodes.push(next);
  }
}

/** How many segments of unclear pieces are followed: each takes a walk down the trees. */
const MOST_UNCLEAR = 64;

/**
 * Finds the items on every way along the pieces.
 *
 * @returns false if too many are unclear
 */
function follow<T>(roots: readonly Node<T>[], pieces: Iterable<Piece>, found: Found<T>): boolean {
  let level: ReadonlySet<Node<T>> = new Set(roots);
  let unclear = 0;
  const add = (nodes: Iterable<Node<T>>) => {
    for (const node of nodes) found.add(node.items, node);
  };
  add(level);
  for (const piece of pieces) {
    if (typeof piece === "string") {
      level = new Set([...level].flatMap((node) => belowOf(node, piece)));
      add(level);
    } else {
      unclear += Math.max(1, piece.segments.length);
      if (unclear > MOST_UNCLEAR) return false;
      level = through(level, piece, found);
    }
    if (found.isDisputed || level.size === 0) return true;
  }
  for (const node of level) found.add(node.exact, node);
  return true;
}

/** Returns the nodes behind an unclear piece, and adds the items on every way through it. */
function through<T>(
  level: ReadonlySet<Node<T>>,
  { segments, sure, hasGaps, mayEnd }: UnclearPiece,
  found: Found<T>,
): ReadonlySet<Node<T>> {
  let here = new Set(level);
  // to some servers several segments are one, which may be anything
  const wide = new Set<Node<T>>();
  for (let i = 0; ; i++) {
    const segment = segments[i];
    const next = new Set<Node<T>>();
    // grows during the loop
    for (const node of here) {
      found.add(node.items, node);
      if (mayEnd && i >= sure) found.add(node.exact, node);
      if (node.any !== undefined) wide.add(node.any);
      if (node.any !== undefined && hasGaps) here.add(node.any);
      const below = segment === undefined ? undefined : node.below.get(segment);
      if (below !== undefined) next.add(below);
      if (i >= sure) next.add(node);
    }
    if (segment === undefined || found.isDisputed) return here;
    for (const node of wide) next.add(node);
    here = next;
  }
}

function once<T>(first: readonly T[], second: readonly T[]): readonly T[] {
  if (second.length === 0) return first;
  return [...new Set([...first, ...second])];
}

/** Returns the list itself where all of it applies. */
function filtered<T>(items: readonly T[], applies: (item: T) => boolean): readonly T[] {
  return items.every(applies) ? items : items.filter(applies);
}

function isParts(read: Interpretations | Parts): read is Parts {
  return read instanceof Set;
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

/** @param above undefined for a root */
function newNode<T>(segment: RuleSegment = ANY, above?: Node<T>): Node<T> {
  const depth = above === undefined ? 0 : above.depth + 1;
  return { segment, above, depth, items: [], exact: [], below: new Map(), any: undefined };
}
