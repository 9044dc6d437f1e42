import { duration, number, rounded, share } from "../words.ts";
import { drawRule, escaped, timeIn, zoneName } from "./chart.ts";
import type { Replayed, RuleReport } from "./report.ts";
import { STYLE } from "./style.ts";
import { ACTOR_COLUMNS, actorCells, limitOf, notesOf, RULE_COLUMNS, ruleCells } from "./tables.ts";

/** The width in which charts are drawn; CSS fits them to the screen. */
const WIDTH = 600;

/** The report as one self-contained file, which can be mailed and opened offline. */
export function htmlReport(replayed: Replayed): string {
  const { rulesFrom, log, zoneMinutes, report } = replayed;
  const { rules } = report;
  const title = `${log} by ${rulesFrom}`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>${escaped(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
${head(title, replayed)}
${ruleTable(rules)}
${rules.map((rule, i) => section(rule, i, zoneMinutes)).join("\n")}
${footnotes(replayed)}
</main>
</body>
</html>
`;
}

function head(title: string, { report, zoneMinutes }: Replayed): string {
  const { requests, passed, waited, refused, firstMs, lastMs } = report;
  const tile = (name: string, count: number, kind: string) =>
    `<div class="tile ${kind}"><b>${number(count)}</b><span>${name}, ${share(count, requests)}</span></div>`;
  return `<h1>${escaped(title)}</h1>
<p>${timeIn(zoneMinutes, firstMs)} to ${timeIn(zoneMinutes, lastMs)} (${zoneName(zoneMinutes)}), ${duration(lastMs - firstMs)}</p>
<div class="tiles">
${tile("requests", requests, "all")}
${tile("passed at once", passed, "passed")}
${tile("waited for their turn", waited, "waited")}
${tile("refused", refused, "refused")}
</div>`;
}

function ruleTable(rules: readonly RuleReport[]): string {
  const rows = rules.map((rule, i) => {
    const shadow = rule.mode === "shadow" ? " <em>shadow</em>" : "";
    return row(`<a href="#rule-${i}">${escaped(rule.name)}</a>${shadow}`, ruleCells(rule));
  });
  return table("rule", RULE_COLUMNS, rows);
}

function section(rule: RuleReport, i: number, zoneMinutes: number): string {
  const { name, url, algo, actor, scope, mode, wait, waited, perSecond } = rule;
  const facts = [
    `${limitOf(rule)} for ${actor === "all" ? "all together" : `each ${actor}`} below ${url}, by ${algo}, ${scope}`,
    ...(mode === "shadow"
      ? ["shadow: its refused requests are those that it would have refused"]
      : []),
    `requests a second: ${rounded(perSecond.mean)} in the mean, ${number(perSecond.peak)} in the busiest second`,
    ...(waited > 0
      ? [`waits: ${duration(wait.meanMs)} in the mean, ${duration(wait.longestMs)} at most`]
      : []),
  ];
  return `<section id="rule-${i}">
<h2>${escaped(name)}</h2>
<p>${escaped(facts.join("; "))}</p>
${drawRule(rule, zoneMinutes, WIDTH)}
${actorTable(rule)}
</section>`;
}

/** Marks a device that counts instead of a missing actor. */
const FALLBACK = " <em>device</em>";

function actorTable({ actor, actors }: RuleReport): string {
  if (actors.length === 0) return "";
  const rows = actors.map((one) => {
    const name = escaped(one.actor === "" ? "(none)" : one.actor);
    return row(`${name}${one.isFallback ? FALLBACK : ""}`, actorCells(one));
  });
  return table(actor, ACTOR_COLUMNS, rows);
}

function footnotes(replayed: Replayed): string {
  const { withoutRule, rules } = replayed.report;
  const notes = [
    ...(withoutRule > 0 ? [`${number(withoutRule)} requests matched no rule and passed.`] : []),
    ...notesOf(replayed).map((note) => `${note}.`),
    ...(rules.some(({ actors }) => actors.some(({ isFallback }) => isFallback))
      ? [`${FALLBACK}: these requests had no such actor, so their device counted instead.`]
      : []),
    "Elsewhere: this rule let these requests pass, and another one refused them.",
    "A second: of the requests that the rule let pass, delayed or refused, the mean over the whole log, and the busiest second.",
    "Worst, of one: the most requests that passed in any time as long as the limit's, of all actors together and of one.",
    "A log cannot show how clients would have reacted to a refusal or a wait: the replay sends their requests as they were.",
  ];
  return `<footer>${notes.map((note) => `<p>${note}</p>`).join("")}</footer>`;
}

function table(first: string, columns: readonly string[], rows: readonly string[]): string {
  const heads = columns.map((column) => `<th scope="col">${escaped(column)}</th>`).join("");
  // the keyboard scrolls what has the focus
  return `<div class="table" tabindex="0" role="region" aria-label="${escaped(first)}"><table>
<thead><tr><th scope="col">${escaped(first)}</th>${heads}</tr></thead>
<tbody>
${rows.join("\n")}
</tbody>
</table></div>`;
}

/** @param first is HTML */
function row(first: string, cells: readonly string[]): string {
  return `<tr><th scope="row">${first}</th>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
}
