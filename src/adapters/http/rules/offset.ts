/** Where in its text something of a document stands. */
import { type Document, isAlias, isCollection, isMap, isNode, isScalar, type Node } from "yaml";

/** Of a node: where it begins, in characters; 0 where there is none. */
export function offset(node: unknown): number {
  return isNode(node) ? (node.range?.[0] ?? 0) : 0;
}

/** Of the node at a path, or of the nearest around it. */
export function nodeOffset(document: Document.Parsed, path: readonly PropertyKey[]): number {
  return offset(find(document, path));
}

function find(document: Document.Parsed, path: readonly PropertyKey[]): Node | null | undefined {
  let node: Node | null | undefined = document.contents;
  for (const key of path) {
    if (isAlias(node)) node = node.resolve(document) as Node | undefined;
    const next: unknown = isCollection(node) ? node.get(key, true) : undefined;
    if (!isNode(next)) break;
    node = next;
  }
  return node;
}

/** Of a key of the map at a path. */
export function keyOffset(
  document: Document.Parsed,
  path: readonly PropertyKey[],
  name: string,
): number {
  const around = find(document, path);
  const map = isAlias(around) ? around.resolve(document) : around;
  const pair = isMap(map)
    ? map.items.find(({ key }) => isScalar(key) && key.value === name)
    : undefined;
  return offset(pair?.key ?? around);
}
