import { LinkedList } from "../ground/linked-list.ts";

/** A member of a fair queue. */
export interface HasFairEntry<Member> {
  readonly fairEntry: FairEntry<Member> | undefined;
}

/** The place of one request in a fair queue. */
export class FairEntry<Item> {
  /** The index of its priority: 0 is the highest. */
  readonly rank: number;
  readonly name: string;
  /** The permits of the request. */
  readonly size: number;
  /** The permits divided by the weight: by so much the request advances the tag of its share. */
  readonly cost: number;
  item: Item | undefined = undefined;
  /** Its number in the order of arrival. */
  number = 0;
  share: Share<Item> | undefined = undefined;
  before: FairEntry<Item> | undefined = undefined;
  after: FairEntry<Item> | undefined = undefined;

  constructor(rank: number, name: string, size: number, weight: number) {
    this.rank = rank;
    this.name = name;
    this.size = size;
    this.cost = size / weight;
  }
}

/** The requests of one share, first in, first out. */
export class Share<Item> extends LinkedList<FairEntry<Item>> {
  readonly name: string;
  /** The virtual time since when it has had requests; `undefined` once one of them was served. */
  since: number | undefined = undefined;
  /** The finish tag of the request that was served last. */
  finish = 0;
  /** The start tag of the first request. */
  start = 0;
  /** How many permits its requests ask for. */
  permits = 0;
  /** Its index in the heap; -1 if it has no request. */
  index = -1;

  constructor(name: string) {
    super();
    this.name = name;
  }

  *items(): Generator<Item> {
    for (const fairEntry of this) yield fairEntry.item as Item;
  }
}
