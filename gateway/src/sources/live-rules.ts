/**
 * The rules in force, from several sources: those of the first source with valid rules. An invalid
 * version is rejected as a whole and reported, and the rules before it stay in force.
 */
import { PRINTABLE, show } from "../ground/check.ts";
import type { Rule } from "../rules/rule.ts";
import type { RuleSource } from "./source.ts";

/** An event about the rules. */
export type RulesEvent =
  /** These rules are in force now. */
  | { readonly type: "applied"; readonly source: string; readonly rules: readonly Rule[] }
  /** This version is invalid; the one before stays in force. `error` usually is a RulesError. */
  | { readonly type: "refused"; readonly source: string; readonly error: unknown }
  /** The source cannot be reached, or can be reached again. */
  | { readonly type: "gone"; readonly source: string; readonly error: unknown }
  | { readonly type: "back"; readonly source: string };

/** Which rules apply when the first source cannot be reached. */
export type WhenSourceGone = "keep" | "next";

interface Host {
  readonly whenSourceGone: WhenSourceGone;
  read(text: string, source: string): readonly Rule[];
  /** Puts the rules in force, or throws and changes nothing. */
  apply(rules: readonly Rule[]): void;
  report(event: RulesEvent): void;
}

export class LiveRules {
  readonly #host: Host;
  readonly #feeds: readonly Feed[];
  readonly #closing = new AbortController();
  #closed: Promise<void> | undefined;
  #inForce: { readonly feed: Feed; readonly rules: readonly Rule[] } | undefined;

  constructor(sources: readonly RuleSource[], host: Host) {
    this.#host = host;
    this.#feeds = sources.map((source) => new Feed(source));
  }

  /** @throws (rejects) if no source has valid rules */
  async open(): Promise<void> {
    await Promise.all(this.#feeds.map((feed) => this.#load(feed)));
    this.#choose();
    if (this.#inForce === undefined) {
      const faults = this.#feeds.map(({ fault }) => fault);
      throw faults.length === 1 ? faults[0] : new AggregateError(faults, "no source has rules");
    }
    try {
      for (const feed of this.#feeds) {
        feed.stop = feed.source.watch?.(() => void this.#reload(feed));
      }
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  /** Stops watching; each source is stopped once, however often this is called. */
  close(): Promise<void> {
    this.#closed ??= this.#stop();
    return this.#closed;
  }

  async #stop(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#feeds.map(async ({ stop }) => stop?.()));
  }

  /** Loads one after the other: a change during a load causes another load after it. */
  async #reload(feed: Feed): Promise<void> {
    feed.calls += 1;
    if (feed.calls > 1) return;
    while (feed.calls > 0 && !this.#closing.signal.aborted) {
      feed.calls = 1;
      await this.#load(feed);
      if (!this.#closing.signal.aborted) this.#choose();
      feed.calls -= 1;
    }
  }

  async #load(feed: Feed): Promise<void> {
    const { name } = feed.source;
    let content: string | readonly Rule[];
    try {
      content = await feed.source.load(this.#closing.signal);
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      if (!feed.isGone) this.#host.report({ type: "gone", source: name, error });
      feed.isGone = true;
      feed.fault = error;
      return;
    }
    if (feed.isGone) this.#host.report({ type: "back", source: name });
    feed.isGone = false;
    if (content === feed.content) return;
    feed.content = content;
    try {
      feed.rules =
        typeof content === "string" ? this.#host.read(content, name) : checkRules(content, name);
    } catch (error) {
      feed.fault = error;
      this.#host.report({ type: "refused", source: name, error });
    }
  }

  /** Applies the rules of the first source that has any. An invalid version is dropped. */
  #choose(): void {
    for (const feed of this.#feeds) {
      if (feed.rules === undefined) continue;
      if (feed.isGone && this.#host.whenSourceGone === "next") continue;
      if (this.#inForce?.rules === feed.rules) return;
      try {
        this.#host.apply(feed.rules);
      } catch (error) {
        feed.fault = error;
        this.#host.report({ type: "refused", source: feed.source.name, error });
        feed.rules = this.#inForce?.feed === feed ? this.#inForce.rules : undefined;
        if (feed.rules !== undefined) return;
        continue;
      }
      this.#inForce = { feed, rules: feed.rules };
      this.#host.report({ type: "applied", source: feed.source.name, rules: feed.rules });
      return;
    }
  }
}

/** Marks that a source has not returned anything yet. */
const NOTHING = Symbol();

/**
 * Checks a source's result: a value that is not rules would mean no limit, or an error at each
 * request.
 */
function checkRules(content: unknown, name: string): readonly Rule[] {
  if (!Array.isArray(content)) {
    throw new TypeError(
      `${name} must return YAML or the result of readRules, got ${show(content)}`,
    );
  }
  for (const [i, one] of content.entries()) {
    const { name: called, url, place } = Object(one) as Partial<Rule>;
    if (typeof url !== "string" || typeof place !== "object") {
      throw new TypeError(`${name}: rule ${i} must come from readRules, got ${show(one)}`);
    }
    if (typeof called === "string" && PRINTABLE.test(called)) continue;
    throw new TypeError(
      `${name}: the name of rule ${i} must be printable ASCII, got ${show(called)}`,
    );
  }
  return content;
}

/** A source, and its last result. */
class Feed {
  readonly source: RuleSource;
  content: string | readonly Rule[] | typeof NOTHING = NOTHING;
  rules: readonly Rule[] | undefined;
  isGone = false;
  fault: unknown;
  calls = 0;
  stop: (() => unknown) | undefined;

  constructor(source: RuleSource) {
    this.source = source;
  }
}
