/** The items that apply to a target with more than one interpretation, as long as one path can have them all. */
import { ANY, type RuleSegment } from "./pattern.ts";

/** Where a path leads in a tree. */
export interface Spot {
  /** The last segment of the path. */
  readonly segment: RuleSegment;
  /** Undefined at the root. */
  readonly above: Spot | undefined;
  /** How many segments the path has. */
  readonly depth: number;
}

export class Found<T> {
  readonly #applies: (item: T) => boolean;
  readonly #isHarmless: (item: T) => boolean;
  readonly #spots = new Map<T, Spot>();
  /** The literal segments of the path that has all items so far, by depth. */
  readonly #path: (string | undefined)[] = [];
  /** Whether no path has all items. */
  isDisputed = false;

  /**
   * @param applies whether an item applies to the request at all
   * @param isHarmless whether an item never refuses a request: where it does not fit, it is left out
   */
  constructor(applies: (item: T) => boolean, isHarmless: (item: T) => boolean) {
    this.#applies = applies;
    this.#isHarmless = isHarmless;
  }

  add(items: readonly T[], spot: Spot): void {
    for (const item of items) {
      if (this.isDisputed) return;
      if (this.#spots.has(item) || !this.#applies(item)) continue;
      this.#spots.set(item, spot);
      if (!this.#isHarmless(item)) this.isDisputed = !this.#fits(spot);
    }
  }

  /** The items; undefined: disputed. */
  get items(): readonly T[] | undefined {
    if (this.isDisputed) return undefined;
    return Array.from(this.#spots)
      .filter(([item, spot]) => !this.#isHarmless(item) || this.#fits(spot))
      .map(([item]) => item);
  }

  /** Whether the path to that spot and those before it can be one; remembers it in that case. */
  #fits(spot: Spot): boolean {
    const segments: [depth: number, segment: string][] = [];
    for (let at: Spot | undefined = spot; at !== undefined; at = at.above) {
      if (at.segment === ANY || at.depth === 0) continue;
      const known = this.#path[at.depth];
      if (known !== undefined && known !== at.segment) return false;
      segments.push([at.depth, at.segment]);
    }
    for (const [depth, segment] of segments) this.#path[depth] = segment;
    return true;
  }
}
