/**
 * Reads YAML 1.2 as plain data in which each part has its place in the text. Rules need no tags, so
 * tags are refused. The node of an alias is shared, not copied, but counted at each use.
 */
import {
  boolCoreTag,
  EVENT_ID,
  type Event,
  floatCoreTag,
  getScalarValue,
  intCoreTag,
  NOT_RESOLVED,
  nullCoreTag,
  parseEvents,
  SCALAR_STYLE,
  type ScalarEvent,
  YAMLException,
} from "js-yaml";
import { show } from "../ground/check.ts";

/** Rules need five levels; a registered algorithm may need some more. */
export const DEEPEST = 32;
const MOST_ALIASES = 100;
/** More than 9 000 rules need. Bounds what aliases can multiply. */
export const MOST_NODES = 400_000;
const MOST_DOCUMENTS = 10_000;

export interface YamlNode {
  /** Where it begins, in characters. */
  readonly at: number;
  /** An object, an array, a string, a number, true, false or null. */
  readonly value: unknown;
  /** Of an array or an object: its parts, in order. */
  readonly items: readonly YamlNode[];
  /** Of an object: its keys, in the order of `items`, and where they begin. */
  readonly keys: readonly { readonly name: string; readonly at: number }[];
  /** The number of nodes in it, those of aliases included. */
  readonly size: number;
}

/** A mistake in the YAML, and where it is, in characters. */
export class YamlMistake extends Error {
  readonly at: number;

  constructor(at: number, message: string) {
    super(message);
    this.at = at;
  }
}

/**
 * Returns the documents of a text, empty ones as null.
 *
 * @throws YamlMistake the first one
 */
export function readYaml(text: string): readonly YamlNode[] {
  try {
    return new TreeBuilder(text).build(parseEvents(text, { maxDepth: DEEPEST }));
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error;
    const { reason, mark } = error;
    const isTooDeep = reason.startsWith("nesting exceeded");
    const says = isTooDeep ? `found more than ${DEEPEST} levels in one another` : reason;
    throw new YamlMistake(mark?.position ?? 0, says);
  }
}

/** Returns the node at a path, or the nearest one around it. */
export function nodeAt(root: YamlNode, path: readonly PropertyKey[]): YamlNode {
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
export function keyAt(node: YamlNode, name: string): number {
  return node.keys.find((key) => key.name === name)?.at ?? node.at;
}

/** A document, an array or an object that is being read. */
interface Open {
  readonly at: number;
  readonly anchor: string;
  readonly value: unknown[] | Record<string, unknown>;
  readonly items: YamlNode[];
  readonly keys: { name: string; at: number }[];
  size: number;
}

const NOTHING: readonly never[] = [];
const PLAIN_TAGS = [nullCoreTag, boolCoreTag, intCoreTag, floatCoreTag];

class TreeBuilder {
  readonly #text: string;
  readonly #open: Open[] = [];
  readonly #anchors = new Map<string, YamlNode>();
  #aliases = 0;
  /** The reader's position, for parts without a place of their own. */
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  build(events: readonly Event[]): readonly YamlNode[] {
    const documents: YamlNode[] = [];
    for (const event of events) {
      switch (event.type) {
        case EVENT_ID.DOCUMENT:
          if (documents.length === MOST_DOCUMENTS) {
            throw new YamlMistake(this.#at, `found more than ${MOST_DOCUMENTS} documents`);
          }
          this.#anchors.clear();
          this.#aliases = 0;
          this.#enter([], "");
          break;
        case EVENT_ID.SEQUENCE:
        case EVENT_ID.MAPPING:
          this.#at = event.start;
          this.#refuseTag(event);
          this.#enter(event.type === EVENT_ID.SEQUENCE ? [] : {}, this.#anchorOf(event));
          break;
        case EVENT_ID.SCALAR:
          this.#scalar(event);
          break;
        case EVENT_ID.ALIAS:
          this.#alias(this.#anchorOf(event), event.anchorStart - 1);
          break;
        case EVENT_ID.POP: {
          const node = this.#open.pop() as Open;
          if (this.#open.length > 0) this.#add(node, node.anchor);
          else documents.push(node.items[0] as YamlNode);
        }
      }
    }
    return documents;
  }

  #anchorOf({ anchorStart, anchorEnd }: { anchorStart: number; anchorEnd: number }): string {
    return anchorStart < 0 ? "" : this.#text.slice(anchorStart, anchorEnd);
  }

  #refuseTag({ tagStart, tagEnd }: { tagStart: number; tagEnd: number }): void {
    if (tagStart < 0) return;
    const tag = show(this.#text.slice(tagStart, tagEnd));
    throw new YamlMistake(tagStart, `found the tag ${tag}, allowed: none`);
  }

  #enter(value: unknown[] | Record<string, unknown>, anchor: string): void {
    this.#open.push({ at: this.#at, anchor, value, items: [], keys: [], size: 1 });
  }

  #scalar(event: ScalarEvent): void {
    // the quotes belong to the text's place
    const isQuoted =
      event.style === SCALAR_STYLE.SINGLE_QUOTED || event.style === SCALAR_STYLE.DOUBLE_QUOTED;
    if (event.valueStart >= 0) this.#at = event.valueStart - (isQuoted ? 1 : 0);
    this.#refuseTag(event);
    const value = this.#valueOf(event);
    const node = { at: this.#at, value, items: NOTHING, keys: NOTHING, size: 1 };
    this.#add(node, this.#anchorOf(event));
  }

  #valueOf(event: ScalarEvent): unknown {
    const text = getScalarValue(this.#text, event);
    if (event.style !== SCALAR_STYLE.PLAIN) return text;
    for (const { resolve, tagName } of PLAIN_TAGS) {
      const value = resolve(text, false, tagName);
      if (value !== NOT_RESOLVED) return value;
    }
    return text;
  }

  #alias(name: string, at: number): void {
    this.#aliases += 1;
    if (this.#aliases > MOST_ALIASES) {
      throw new YamlMistake(at, `found more than ${MOST_ALIASES} aliases`);
    }
    const node = this.#anchors.get(name);
    if (node === undefined) {
      throw new YamlMistake(
        at,
        `found *${name.slice(0, 40)}, which this document has no anchor for`,
      );
    }
    this.#add(node, "");
  }

  /** Adds a part to what is being read: an item, a key or the value of a key. */
  #add(node: YamlNode, anchor: string): void {
    if (anchor !== "") this.#anchors.set(anchor, node);
    const open = this.#open.at(-1) as Open;
    open.size += node.size;
    if (open.size > MOST_NODES) {
      throw new YamlMistake(node.at, `found more than ${MOST_NODES} parts, aliases included`);
    }
    if (Array.isArray(open.value)) {
      open.value.push(node.value);
      open.items.push(node);
    } else if (open.keys.length === open.items.length) {
      this.#key(open, node);
    } else {
      open.value[open.keys.at(-1)?.name as string] = node.value;
      open.items.push(node);
    }
  }

  #key({ value, keys }: Open, { at, value: key }: YamlNode): void {
    if (typeof key !== "string" || key === "__proto__") {
      const found = Object(key) === key ? "that is no text" : show(key);
      throw new YamlMistake(at, `found a key ${found}, allowed: a text, in quotes where need be`);
    }
    const name = key === "Url" ? "url" : key;
    if (Object.hasOwn(value, name)) {
      throw new YamlMistake(at, `found the key ${show(name)} a second time`);
    }
    keys.push({ name, at });
  }
}
