/** Rules that are plain objects, as the tree that texts are read as too. */
import type { Place } from "./rule.ts";
import {
  DEEPEST,
  MOST_NODES,
  mistake,
  type RulesNode,
  type RulesTree,
  tooDeep,
} from "./rules-tree.ts";

/**
 * Returns a copy of the data as a tree. Values that no text has, such as functions, are kept: the
 * schema refuses them. Properties that are undefined are left out.
 *
 * @throws RulesError for objects that are too deep, for example because they contain themselves, or
 *   too large
 */
export function treeOfObjects(data: unknown, source: string): RulesTree {
  /** The paths of the nodes, "[0].rules[1].rpu": `at` of a node is the index of its path. */
  const paths: string[] = [];
  const placeOf = (at: number): Place => ({
    source: `${source}${paths[at]}`,
    line: 0,
    column: 0,
  });
  const nodeOf = (value: unknown, path: string, depth: number): RulesNode => {
    if (depth > DEEPEST) throw tooDeep(placeOf(0));
    const at = paths.push(path) - 1;
    if (at === MOST_NODES) throw mistake(placeOf(0), `found more than ${MOST_NODES} parts`);
    if (Array.isArray(value)) {
      const items = value.map((each, i) => nodeOf(each, `${path}[${i}]`, depth + 1));
      return { at, value: items.map((item) => item.value), items, keys: [] };
    }
    if (!isPlain(value)) return { at, value, items: [], keys: [] };
    const entries = Object.entries(value).filter(([, each]) => each !== undefined);
    const items = entries.map(([key, each]) => nodeOf(each, `${path}.${key}`, depth + 1));
    const keys = entries.map(([name], i) => ({ name, at: (items[i] as RulesNode).at }));
    const copy = Object.fromEntries(keys.map(({ name }, i) => [name, items[i]?.value]));
    return { at, value: copy, items, keys };
  };
  return { documents: [nodeOf(data, "", 0)], placeOf };
}

function isPlain(value: unknown): value is object {
  return typeof value === "object" && value !== null && !(value instanceof Promise);
}
