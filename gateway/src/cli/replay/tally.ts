/** Counts the results of a replay, and creates the report. */
import { createHmac } from "node:crypto";
import type { Outcome, RequestRule, Verdict } from "../../index.ts";
import type { ActorReport, Report, RuleReport } from "./report.ts";
import { type Part, TimeSeries } from "./time-series.ts";
import { TopActors } from "./top-actors.ts";
import { WindowPeak } from "./window-peak.ts";

/** The values of actors that a line of the log has, by their names. */
type Own = Readonly<Record<string, string | undefined>>;

/** Actors that every line has. */
const BUILT_IN = ["all", "device"];
/** Marks a device that counts instead of a missing actor: it may look like one. */
const FALLBACK = "?";
const KNOWN = "=";

/** The results of one actor's requests. */
class Notes {
  passed = 0;
  waited = 0;
  refused = 0;
  readonly peak: WindowPeak;

  constructor(windowMs: number) {
    this.peak = new WindowPeak(windowMs);
  }

  reset(): void {
    this.passed = 0;
    this.waited = 0;
    this.refused = 0;
    this.peak.reset();
  }
}

class RuleTally {
  readonly rule: RequestRule;
  requests = 0;
  passed = 0;
  waited = 0;
  refused = 0;
  refusedElsewhere = 0;
  waitSumMs = 0;
  longestMs = 0;
  mostOfOneActor = 0;
  readonly series = new TimeSeries();
  readonly #peak: WindowPeak;
  readonly #actors: TopActors<Notes>;
  readonly #isBuiltIn: boolean;

  constructor(rule: RequestRule) {
    this.rule = rule;
    this.#isBuiltIn = BUILT_IN.includes(rule.actor);
    this.#peak = new WindowPeak(rule.periodMs);
    this.#actors = new TopActors(() => new Notes(rule.periodMs));
  }

  add({ actor, allowed, decision }: Outcome, verdict: Verdict, atMs: number, own: Own): void {
    this.requests += 1;
    const isFallback = !this.#isBuiltIn && !own[this.rule.actor];
    const notes = this.#actors.count(`${isFallback ? FALLBACK : KNOWN}${actor}`);
    if (allowed && !verdict.allowed) {
      this.refusedElsewhere += 1;
      return;
    }
    const part = partOf(allowed, decision.waitMs);
    this[part] += 1;
    notes[part] += 1;
    this.series.add(part, atMs);
    if (part === "waited") {
      this.waitSumMs += decision.waitMs;
      this.longestMs = Math.max(this.longestMs, decision.waitMs);
    }
    if (!verdict.allowed) return;
    const passedMs = atMs + verdict.waitedMs;
    this.#peak.add(passedMs);
    notes.peak.add(passedMs);
    this.mostOfOneActor = Math.max(this.mostOfOneActor, notes.peak.most);
  }

  /** @param spanMs the duration of the log */
  report(top: number, show: (actor: string) => string, spanMs: number): RuleReport {
    const { name, url, actor, algo, scope, mode, rpu, periodMs } = this.rule;
    const { requests, passed, waited, refused, refusedElsewhere } = this;
    const { waitSumMs, longestMs, mostOfOneActor } = this;
    const actors = this.#actors.top(actor === "all" ? 0 : top).map(
      ({ actor, requests, surplus, notes: { passed, waited, refused, peak } }): ActorReport => ({
        actor: show(actor.slice(1)),
        isFallback: actor.startsWith(FALLBACK),
        requests,
        surplus,
        passed,
        waited,
        refused,
        mostInWindow: peak.most,
      }),
    );
    const points = this.series.points();
    const perSecond = {
      // a log may have only one instant
      mean: ((passed + waited + refused) * 1000) / Math.max(1000, spanMs),
      peak: Math.max(0, ...points.peaks),
    };
    return {
      ...{ name, url, actor, algo, scope, mode, rpu, periodMs },
      ...{ requests, passed, waited, refused, refusedElsewhere },
      perSecond,
      wait: { meanMs: waited > 0 ? waitSumMs / waited : 0, longestMs },
      mostInWindow: this.#peak.most,
      mostOfOneActor,
      actors,
      points,
    };
  }
}

function partOf(allowed: boolean, waitMs: number): Part {
  if (!allowed) return "refused";
  return waitMs > 0 ? "waited" : "passed";
}

export class Tally {
  readonly #rules: ReadonlyMap<string, RuleTally>;
  #requests = 0;
  #waited = 0;
  #refused = 0;
  #withoutRule = 0;
  #firstMs = Infinity;
  #lastMs = -Infinity;

  constructor(rules: readonly RequestRule[]) {
    this.#rules = new Map(rules.map((rule) => [rule.name, new RuleTally(rule)]));
  }

  /**
   * @param atMs when the request came, Unix time
   * @param own the actors of the request that the log has
   */
  add(verdict: Verdict, atMs: number, own: Own): void {
    this.#requests += 1;
    this.#firstMs = Math.min(this.#firstMs, atMs);
    this.#lastMs = Math.max(this.#lastMs, atMs);
    if (verdict.outcomes.length === 0) this.#withoutRule += 1;
    if (!verdict.allowed) this.#refused += 1;
    else if (verdict.waitedMs > 0) this.#waited += 1;
    for (const outcome of verdict.outcomes) {
      this.#rules.get(outcome.rule.name)?.add(outcome, verdict, atMs, own);
    }
  }

  /**
   * @param top how many actors of each rule are listed
   * @param hashKey if given, actors are replaced by a hash with this key
   */
  report(top: number, hashKey: string | undefined): Report {
    const show = (actor: string) =>
      hashKey === undefined
        ? actor
        : `#${createHmac("sha256", hashKey).update(actor).digest("hex").slice(0, 12)}`;
    const requests = this.#requests;
    const spanMs = this.#lastMs - this.#firstMs;
    return {
      requests,
      passed: requests - this.#waited - this.#refused,
      waited: this.#waited,
      refused: this.#refused,
      withoutRule: this.#withoutRule,
      firstMs: requests > 0 ? this.#firstMs : 0,
      lastMs: requests > 0 ? this.#lastMs : 0,
      rules: [...this.#rules.values()].map((rule) => rule.report(top, show, spanMs)),
    };
  }
}
