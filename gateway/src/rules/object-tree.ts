/** Rules that are plain objects, as the tree that the reader of texts works on: see `yaml-tree.ts`. */
import { DEEPEST, MOST_NODES, type YamlNode } from "./yaml-tree.ts";

export interface ObjectTree {
  readonly root: YamlNode;
  /** The paths of the nodes, "[0].rules[1].rpu": `at` of a node is the index of its path. */
  readonly paths: readonly string[];
}

/** Objects that are too deep, for example because they contain themselves, or too large. */
export class ObjectMistake extends Error {}

/**
 * Returns a copy of the data as a tree. Values that no text has, such as functions, are kept: the
 * schema refuses them. Properties that are undefined are left out.
 *
 * @throws ObjectMistake
 */
export function treeOf(data: unknown): ObjectTree {
  const paths: string[] = [];
  const nodeOf = (value: unknown, path: string, depth: number): YamlNode => {
    if (depth > DEEPEST) {
      throw new ObjectMistake(`found more than ${DEEPEST} levels in one another`);
    }
    const at = paths.push(path) - 1;
    if (paths.length > MOST_NODES) throw new ObjectMistake(`found more than ${MOST_NODES} parts`);
    if (Array.isArray(value)) {
      const items = value.map((each, i) => nodeOf(each, `${path}[${i}]`, depth + 1));
      const copy = items.map((item) => item.value);
      return { at, value: copy, items, keys: [], size: items.length };
    }
    if (!isPlain(value)) return { at, value, items: [], keys: [], size: 1 };
    const entries = Object.entries(value).filter(([, each]) => each !== undefined);
    const items = entries.map(([key, each]) => nodeOf(each, `${path}.${key}`, depth + 1));
    const keys = entries.map(([name], i) => ({ name, at: (items[i] as YamlNode).at }));
    const copy = Object.fromEntries(keys.map(({ name }, i) => [name, items[i]?.value]));
    return { at, value: copy, items, keys, size: items.length };
  };
  return { root: nodeOf(data, "", 0), paths };
}

function isPlain(value: unknown): value is object {
  return typeof value === "object" && value !== null && !(value instanceof Promise);
}
