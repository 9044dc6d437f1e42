/**
 * Reads YAML 1.2 as plain data in which each part has its place in the text. Rules need no tags, so
 * tags are refused. The node of an alias is shared, not copied, but counted at each use.
 *
 * The places come from js-yaml's events. The package yaml has nodes with places, but no bound on the
 * depth, and it goes on after a mistake: it collects 520 000 errors of a list of commas for 9 s, where
 * js-yaml stops at the first one. It also takes at least five times as long to parse 9 000 rules.
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
import type { Place } from "./rule.ts";
import type { RulesError } from "./rules-error.ts";
import {
  DEEPEST,
  MOST_NODES,
  mistake,
  type RulesNode,
  type RulesTree,
  tooDeep,
} from "./rules-tree.ts";

/** In characters. A bound, because reading blocks the event loop. */
const LONGEST = 2 ** 19;
const MOST_ALIASES = 100;
const MOST_DOCUMENTS = 10_000;

type PlaceOf = RulesTree["placeOf"];

/**
 * Returns the documents of a text that are not empty.
 *
 * @throws RulesError the first mistake in the YAML
 */
export function treeOfText(text: string, source: string): RulesTree {
  const placeOf = placesIn(text.slice(0, LONGEST), source);
  if (text.length > LONGEST) {
    throw mistake(placeOf(0), `found ${text.length} characters, allowed: at most ${LONGEST}`);
  }
  const documents = new TreeBuilder(text, placeOf).build(eventsOf(text, placeOf));
  const filled = documents.filter(({ value }) => value !== null);
  if (filled.length > 0) return { documents: filled, placeOf };
  throw mistake(placeOf(0), "found nothing, allowed: a url with rules, a list, or []");
}

/** Returns a function that returns the place of a character. */
function placesIn(text: string, source: string): PlaceOf {
  const lineStarts = [0, ...Array.from(text.matchAll(/\n/g), ({ index }) => index + 1)];
  return (at): Place => {
    let line = 0;
    for (let after = lineStarts.length; after - line > 1; ) {
      const middle = (line + after) >> 1;
      if ((lineStarts[middle] as number) <= at) line = middle;
      else after = middle;
    }
    return { source, line: line + 1, column: at - (lineStarts[line] as number) + 1 };
  };
}

function eventsOf(text: string, placeOf: PlaceOf): readonly Event[] {
  try {
    return parseEvents(text, { maxDepth: DEEPEST });
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error;
    const place = placeOf(error.mark?.position ?? 0);
    const isTooDeep = error.reason.startsWith("nesting exceeded");
    throw isTooDeep ? tooDeep(place) : mistake(place, error.reason);
  }
}

interface YamlNode extends RulesNode {
  /** The number of nodes in it, those of aliases included. */
  readonly size: number;
}

/** A document, an array or an object that is being read. */
interface Open {
  readonly at: number;
  readonly anchor: string;
  readonly value: unknown[] | Record<string, unknown>;
  readonly items: RulesNode[];
  readonly keys: { name: string; at: number }[];
  size: number;
}

const NOTHING: readonly never[] = [];
const PLAIN_TAGS = [nullCoreTag, boolCoreTag, intCoreTag, floatCoreTag];

class TreeBuilder {
  readonly #text: string;
  readonly #placeOf: PlaceOf;
  readonly #open: Open[] = [];
  readonly #anchors = new Map<string, YamlNode>();
  #aliases = 0;
  /** The reader's position, for parts without a place of their own. */
  #at = 0;

  constructor(text: string, placeOf: PlaceOf) {
    this.#text = text;
    this.#placeOf = placeOf;
  }

  build(events: readonly Event[]): readonly RulesNode[] {
    const documents: RulesNode[] = [];
    for (const event of events) {
      switch (event.type) {
        case EVENT_ID.DOCUMENT:
          if (documents.length === MOST_DOCUMENTS) {
            throw this.#mistake(this.#at, `found more than ${MOST_DOCUMENTS} documents`);
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
          else documents.push(node.items[0] as RulesNode);
        }
      }
    }
    return documents;
  }

  #mistake(at: number, message: string): RulesError {
    return mistake(this.#placeOf(at), message);
  }

  #anchorOf({ anchorStart, anchorEnd }: { anchorStart: number; anchorEnd: number }): string {
    return anchorStart < 0 ? "" : this.#text.slice(anchorStart, anchorEnd);
  }

  #refuseTag({ tagStart, tagEnd }: { tagStart: number; tagEnd: number }): void {
    if (tagStart < 0) return;
    const tag = show(this.#text.slice(tagStart, tagEnd));
    throw this.#mistake(tagStart, `found the tag ${tag}, allowed: none`);
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
      throw this.#mistake(at, `found more than ${MOST_ALIASES} aliases`);
    }
    const node = this.#anchors.get(name);
    if (node === undefined) {
      throw this.#mistake(at, `found *${name.slice(0, 40)}, which this document has no anchor for`);
    }
    this.#add(node, "");
  }

  /** Adds a part to what is being read: an item, a key or the value of a key. */
  #add(node: YamlNode, anchor: string): void {
    if (anchor !== "") this.#anchors.set(anchor, node);
    const open = this.#open.at(-1) as Open;
    open.size += node.size;
    if (open.size > MOST_NODES) {
      throw this.#mistake(node.at, `found more than ${MOST_NODES} parts, aliases included`);
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
      throw this.#mistake(at, `found a key ${found}, allowed: a text, in quotes where need be`);
    }
    const name = key === "Url" ? "url" : key;
    if (Object.hasOwn(value, name)) {
      throw this.#mistake(at, `found the key ${show(name)} a second time`);
    }
    keys.push({ name, at });
  }
}
