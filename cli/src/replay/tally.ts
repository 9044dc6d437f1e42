/** Counts the results of a replay, and creates the report. */
import { createHmac } from "node:crypto";
import type { Outcome, RequestRule, Verdict } from "smooth-limiter-gateway";
import type { ActorReport, Counts, Part, Report, RuleReport } from "../report/report.ts";
import { TimeSeries } from "./time-series.ts";
import { WindowPeak } from "./window-peak.ts";

/** The values of actors that a line of the log has, by their names. */
type Own = Readonly<Record<string, string | undefined>>;

/** Actors that every line has. */
const BUILT_IN = ["all", "device"];

/** The results of requests. Most actors send few: what only others need is created later. */
class Sums implements Counts {
  passed = 0;
  waited = 0;
  refused = 0;
  /** Those that another rule refused. */
  elsewhere = 0;
  #passedMs: number | undefined;
  /** Undefined until two requests pass in one window. */
  #peak: WindowPeak | undefined;

  pass(atMs: number, windowMs: number): void {
    const beforeMs = this.#passedMs;
    this.#passedMs = atMs;
    if (this.#peak === undefined && beforeMs !== undefined && atMs - beforeMs < windowMs) {
      this.#peak = new WindowPeak(windowMs);
      this.#peak.add(beforeMs);
    }
    this.#peak?.add(atMs);
  }

  get requests(): number {
    return this.passed + this.waited + this.refused + this.elsewhere;
  }

  get mostInWindow(): number {
    return this.#peak?.most ?? (this.#passedMs === undefined ? 0 : 1);
  }
}

class RuleTally {
  readonly #rule: RequestRule;
  #waitSumMs = 0;
  #longestMs = 0;
  readonly #peak: WindowPeak;
  readonly #series = new TimeSeries();
  readonly #actors = new Map<string, Sums>();
  /** Devices that count instead of a missing actor: they may look like one. */
  readonly #fallbacks = new Map<string, Sums>();
  readonly #isBuiltIn: boolean;

  constructor(rule: RequestRule) {
    this.#rule = rule;
    this.#peak = new WindowPeak(rule.periodMs);
    this.#isBuiltIn = BUILT_IN.includes(rule.actor);
  }

  add({ actor, allowed, decision }: Outcome, verdict: Verdict, atMs: number, own: Own): void {
    const isFallback = !this.#isBuiltIn && !own[this.#rule.actor];
    const sums = sumsOf(isFallback ? this.#fallbacks : this.#actors, actor);
    if (allowed && !verdict.allowed) {
      sums.elsewhere += 1;
      return;
    }
    const part = partOf(allowed, decision.waitMs);
    sums[part] += 1;
    this.#series.add(part, atMs);
    if (part === "waited") {
      this.#waitSumMs += decision.waitMs;
      this.#longestMs = Math.max(this.#longestMs, decision.waitMs);
    }
    if (!verdict.allowed) return;
    const passedMs = atMs + verdict.waitedMs;
    this.#peak.add(passedMs);
    sums.pass(passedMs, this.#rule.periodMs);
  }

  /** @param spanMs the duration of the log */
  report(top: number, show: (actor: string) => string, spanMs: number): RuleReport {
    const { name, url, actor, algo, scope, mode, rpu, periodMs } = this.#rule;
    const byActor = [...this.#actors, ...this.#fallbacks];
    const all = countsOf(byActor.map(([, sums]) => sums));
    const decided = all.passed + all.waited + all.refused;
    const listed = byActor
      .sort(([, one], [, other]) => other.requests - one.requests)
      .slice(0, actor === "all" ? 0 : top);
    const points = this.#series.points();
    return {
      ...{ name, url, actor, algo, scope, mode, rpu, periodMs },
      ...all,
      refusedElsewhere: all.requests - decided,
      perSecond: {
        // a log may have only one instant
        mean: (decided * 1000) / Math.max(1000, spanMs),
        peak: Math.max(0, ...points.peaks),
      },
      wait: {
        meanMs: all.waited > 0 ? this.#waitSumMs / all.waited : 0,
        longestMs: this.#longestMs,
      },
      mostInWindow: this.#peak.most,
      mostOfOneActor: byActor.reduce((most, [, sums]) => Math.max(most, sums.mostInWindow), 0),
      actors: listed.map(
        ([actor, sums]): ActorReport => ({
          actor: show(actor),
          isFallback: this.#fallbacks.get(actor) === sums,
          ...countsOf([sums]),
          mostInWindow: sums.mostInWindow,
        }),
      ),
      points,
    };
  }
}

function countsOf(all: readonly Sums[]): Counts {
  const sum = (what: keyof Counts) => all.reduce((before, sums) => before + sums[what], 0);
  return {
    requests: sum("requests"),
    passed: sum("passed"),
    waited: sum("waited"),
    refused: sum("refused"),
  };
}

function sumsOf(actors: Map<string, Sums>, actor: string): Sums {
  const known = actors.get(actor);
  if (known !== undefined) return known;
  const sums = new Sums();
  actors.set(copyOf(actor), sums);
  return sums;
}

/** Copies a text: in V8 a part of a line keeps in memory everything that was read with the line. */
function copyOf(text: string): string {
  return ` ${text}`.slice(1);
}

function partOf(allowed: boolean, waitMs: number): Part {
  if (!allowed) return "refused";
  return waitMs > 0 ? "waited" : "passed";
}

export class Tally {
  readonly #rules: ReadonlyMap<string, RuleTally>;
  readonly #counts = { requests: 0, passed: 0, waited: 0, refused: 0, withoutRule: 0 };
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
    const counts = this.#counts;
    counts.requests += 1;
    counts[partOf(verdict.allowed, verdict.waitedMs)] += 1;
    // a disputed target is refused although no rule is asked
    if (verdict.outcomes.length === 0 && verdict.allowed) counts.withoutRule += 1;
    this.#firstMs = Math.min(this.#firstMs, atMs);
    this.#lastMs = Math.max(this.#lastMs, atMs);
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
    const [firstMs, lastMs] = [this.#firstMs, this.#lastMs];
    const rules = [...this.#rules.values()].map((rule) => rule.report(top, show, lastMs - firstMs));
    return { ...this.#counts, firstMs, lastMs, rules };
  }
}
