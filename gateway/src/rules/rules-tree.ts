/** Rules as data in which each part has its place: in a text, or in the objects of an application. */
import type { Place } from "./rule.ts";
import { RulesError } from "./rules-error.ts";

/** Rules need five levels; a registered algorithm may need some more. */
export const DEEPEST = 32;
/** More than 9 000 rules need. Bounds what aliases can multiply. */
export const MOST_NODES = 400_000;

export interface RulesNode {
  /** Where it begins: what the number means is up to the tree. */
  readonly at: number;
  /** An object, an array, a string, a number, true, false or null. */
  readonly value: unknown;
  /** Of an array or an object: its parts, in order. */
  readonly items: readonly RulesNode[];
  /** Of an object: its keys, in the order of `items`, and where they begin. */
  readonly keys: readonly { readonly name: string; readonly at: number }[];
}

export interface RulesTree {
  readonly documents: readonly RulesNode[];
  /** @param at of a node, or of a key */
  placeOf(at: number): Place;
}

/** Returns the node at a path, or the nearest one around it. */
export function nodeAt(root: RulesNode, path: readonly PropertyKey[]): RulesNode {
  let node = root;
  for (const key of path) {
    const isObject = node.keys.length > 0;
    const index = isObject ? node.keys.findIndex(({ name }) => name === key) : Number(key);
    const next = node.items[index];
    if (next === undefined) break;
    node = next;
  }
  return node;
}

/** Returns where a key of an object begins. */
export function keyAt(node: RulesNode, name: string): number {
  return node.keys.find((key) => key.name === name)?.at ?? node.at;
}

/** Returns the error of rules that are no tree. */
export function mistake(place: Place, message: string): RulesError {
  return new RulesError([{ ...place, message }]);
}

export function tooDeep(place: Place): RulesError {
  return mistake(place, `found more than ${DEEPEST} levels in one another`);
}
