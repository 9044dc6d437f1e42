/**
 * The rules in force, out of several sources: those of the first source that has good ones. A
 * version that is broken is refused whole and reported, and what was there before stays.
 */
import { show } from "../../../check.ts";
import type { Rule } from "../rules/rule.ts";
import type { RuleSource } from "./source.ts";

/** Something that happened to the rules. */
export type RulesEvent =
  /** These are in force now. */
  | { readonly type: "applied"; readonly source: string; readonly rules: readonly Rule[] }
  /** This version is broken: the one before stays. `error` is a RulesError, as a rule. */
  | { readonly type: "refused"; readonly source: string; readonly error: unknown }
  /** The source cannot be reached, or it can again. */
  | { readonly type: "gone"; readonly source: string; readonly error: unknown }
  | { readonly type: "back"; readonly source: string };

/** What is in force when the first source is gone. */
export type WhenSourceGone = "keep" | "next";

interface Desk {
  readonly whenSourceGone: WhenSourceGone;
  read(text: string, source: string): readonly Rule[];
  /** Puts them in force, or throws and changes nothing. */
  apply(rules: readonly Rule[]): void;
  report(event: RulesEvent): void;
}

export class LiveRules {
  readonly #desk: Desk;
  readonly #feeds: readonly Feed[];
  readonly #closing = new AbortController();
  #inForce: { readonly feed: Feed; readonly rules: readonly Rule[] } | undefined;

  constructor(sources: readonly RuleSource[], desk: Desk) {
    this.#desk = desk;
    this.#feeds = sources.map((source) => new Feed(source));
  }

  /** @throws (as a rejection) where no source has good rules */
  async open(): Promise<void> {
    await Promise.all(this.#feeds.map((feed) => this.#load(feed)));
    this.#choose();
    if (this.#inForce === undefined) {
      const faults = this.#feeds.map(({ fault }) => fault);
      throw faults.length === 1 ? faults[0] : new AggregateError(faults, "no source has rules");
    }
    for (const feed of this.#feeds) {
      feed.stop = feed.source.watch?.(() => void this.#reload(feed));
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#feeds.map(({ stop }) => stop?.()));
  }

  /** One after the other: what is told during a load is looked at after it. */
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
    let told: string | readonly Rule[];
    try {
      told = await feed.source.load(this.#closing.signal);
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      if (!feed.isGone) this.#desk.report({ type: "gone", source: name, error });
      feed.isGone = true;
      feed.fault = error;
      return;
    }
    if (feed.isGone) this.#desk.report({ type: "back", source: name });
    feed.isGone = false;
    if (told === feed.told) return;
    feed.told = told;
    try {
      feed.rules = typeof told === "string" ? this.#desk.read(told, name) : checkRules(told, name);
    } catch (error) {
      feed.fault = error;
      this.#desk.report({ type: "refused", source: name, error });
    }
  }

  /** Puts in force what the first source has that has something; a broken version is no more looked at. */
  #choose(): void {
    for (const feed of this.#feeds) {
      if (feed.rules === undefined) continue;
      if (feed.isGone && this.#desk.whenSourceGone === "next") continue;
      if (this.#inForce?.rules === feed.rules) return;
      try {
        this.#desk.apply(feed.rules);
      } catch (error) {
        feed.fault = error;
        this.#desk.report({ type: "refused", source: feed.source.name, error });
        feed.rules = this.#inForce?.feed === feed ? this.#inForce.rules : undefined;
        if (feed.rules !== undefined) return;
        continue;
      }
      this.#inForce = { feed, rules: feed.rules };
      this.#desk.report({ type: "applied", source: feed.source.name, rules: feed.rules });
      return;
    }
  }
}

/** Which no source tells. */
const NOTHING = Symbol();

/** What is no rules would be no limit, or a fault at each request. */
function checkRules(told: unknown, name: string): readonly Rule[] {
  if (!Array.isArray(told)) {
    throw new TypeError(`${name} must tell YAML or what readRules made, got ${show(told)}`);
  }
  for (const [i, one] of told.entries()) {
    const { name: called, url, place } = Object(one) as Partial<Rule>;
    if (typeof url !== "string" || typeof place !== "object") {
      throw new TypeError(`${name}: rule ${i} must be one that readRules made, got ${show(one)}`);
    }
    if (typeof called === "string" && PRINTABLE.test(called)) continue;
    throw new TypeError(
      `${name}: the name of rule ${i} must be printable ASCII, got ${show(called)}`,
    );
  }
  return told;
}

/** A name goes into header fields. */
const PRINTABLE = /^[ -~]+$/;

/** A source, and what it told last. */
class Feed {
  readonly source: RuleSource;
  told: string | readonly Rule[] | typeof NOTHING = NOTHING;
  rules: readonly Rule[] | undefined;
  isGone = false;
  fault: unknown;
  calls = 0;
  stop: (() => unknown) | undefined;

  constructor(source: RuleSource) {
    this.source = source;
  }
}
