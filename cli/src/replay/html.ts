import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { duration, number, rounded, share, some } from "../words.ts";
import { PAGE_SCRIPT, PAGE_STYLE } from "./page.ts";
import type { Replayed, RuleReport } from "./report.ts";
import type { Points } from "./time-series.ts";

/** The report as one self-contained file, which can be mailed and opened offline. */
export function htmlReport(replayed: Replayed): string {
  const { rulesFrom, log, zoneMinutes, report } = replayed;
  const { rules } = report;
  // numbers only: no text of the log can end the element
  const plots = rules.map(({ points, actor, rpu, periodMs }) => ({
    ...points,
    // per second; a limit for each actor cannot be drawn in a plot of all actors together
    limit: actor === "all" ? (rpu * 1000) / periodMs : null,
    zoneMinutes,
    zone: zoneName(zoneMinutes),
  }));
  const title = `${log} by ${rulesFrom}`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>${escapeHtml(title)}</title>
<style>${asset("uPlot.min.css")}</style>
<style>${PAGE_STYLE}</style>
</head>
<body>
<main>
${head(title, replayed)}
${ruleTable(rules)}
${rules.map(section).join("\n")}
${footnotes(replayed)}
</main>
<script type="application/json" id="plots">${JSON.stringify(plots)}</script>
<script>${asset("uPlot.iife.min.js")}</script>
<script>${PAGE_SCRIPT}</script>
</body>
</html>
`;
}

/** Reads a file of the installed uPlot. */
function asset(name: string): string {
  const dist = dirname(createRequire(import.meta.url).resolve("uplot"));
  return readFileSync(join(dist, name), "utf8");
}

/** "UTC+05:30". */
function zoneName(minutes: number): string {
  if (minutes === 0) return "UTC";
  const two = (count: number) => String(count).padStart(2, "0");
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** An instant in the log's own zone. */
function timeIn(zoneMinutes: number, ms: number): string {
  const local = new Date(ms + zoneMinutes * 60_000).toISOString();
  return local.replace("T", " ").replace("Z", "");
}

function head(title: string, { report, zoneMinutes }: Replayed): string {
  const { requests, passed, waited, refused, firstMs, lastMs } = report;
  const tile = (name: string, count: number, kind: string) =>
    `<div class="tile ${kind}"><b>${number(count)}</b><span>${name}, ${share(count, requests)}</span></div>`;
  return `<h1>${escapeHtml(title)}</h1>
<p>${timeIn(zoneMinutes, firstMs)} to ${timeIn(zoneMinutes, lastMs)} (${zoneName(zoneMinutes)}), ${duration(lastMs - firstMs)}</p>
<div class="tiles">
${tile("requests", requests, "all")}
${tile("passed at once", passed, "passed")}
${tile("waited for their turn", waited, "waited")}
${tile("refused", refused, "refused")}
</div>`;
}

function ruleTable(rules: readonly RuleReport[]): string {
  const rows = rules.map((rule, i) =>
    row(
      `<a href="#rule-${i}">${escapeHtml(rule.name)}</a>${rule.mode === "shadow" ? " <em>shadow</em>" : ""}`,
      [
        rate(rule),
        number(rule.requests),
        number(rule.passed),
        number(rule.waited),
        number(rule.refused),
        number(rule.refusedElsewhere),
        rounded(rule.perSecond.mean),
        number(rule.perSecond.peak),
        number(rule.mostInWindow),
        number(rule.mostOfOneActor),
      ],
    ),
  );
  const columns = [
    "limit",
    "requests",
    "passed",
    "waited",
    "refused",
    "refused by others",
    "a second, mean",
    "busiest second",
    "worst window",
    "of one actor",
  ];
  return table("rule", columns, rows);
}

function section(rule: RuleReport, i: number): string {
  const { name, url, algo, actor, scope, mode, wait, waited, perSecond, points } = rule;
  const facts = [
    `${rate(rule)} for ${actor === "all" ? "all together" : `each ${actor}`} below ${url}, by ${algo}, ${scope}`,
    ...(mode === "shadow"
      ? ["shadow: its refused requests are those that it would have refused"]
      : []),
    `requests a second: ${rounded(perSecond.mean)} in the mean, ${number(perSecond.peak)} in the busiest second`,
    ...(waited > 0
      ? [`waits: ${duration(wait.meanMs)} in the mean, ${duration(wait.longestMs)} at most`]
      : []),
  ];
  return `<section id="rule-${i}">
<h2>${escapeHtml(name)}</h2>
<p>${escapeHtml(facts.join("; "))}</p>
<p class="caption">${caption(points)}</p>
<div class="plot" data-plot="${i}" role="img" aria-label="${escapeHtml(`requests a second over time: ${name}`)}"></div>
${actorTable(rule)}
</section>`;
}

/** Says what a point of the plot is. */
function caption({ stepMs }: Points): string {
  const step = duration(stepMs);
  if (stepMs === 1000) return `Requests in each ${step}.`;
  return `Areas: the mean of each ${step}. Line: the busiest second of each ${step}.`;
}

/** Marks a device that counts instead of a missing actor. */
const FALLBACK = " <em>device</em>";

function actorTable({ actor, actors }: RuleReport): string {
  if (actors.length === 0) return "";
  const rows = actors.map((one) =>
    row(`${escapeHtml(one.actor === "" ? "(none)" : one.actor)}${one.isFallback ? FALLBACK : ""}`, [
      number(one.requests),
      number(one.passed),
      number(one.waited),
      number(one.refused),
      number(one.mostInWindow),
    ]),
  );
  const columns = ["requests", "passed", "waited", "refused", "worst window"];
  return table(actor, columns, rows);
}

function footnotes({ lines, unread, late, report }: Replayed): string {
  const notes = [
    ...(report.withoutRule > 0
      ? [`${number(report.withoutRule)} requests matched no rule and passed.`]
      : []),
    ...(unread > 0 ? [`${number(unread)} of ${number(lines)} lines were not requests.`] : []),
    ...(late > 0 ? [`${some(late, "line")} out of order by more than --hold: played late.`] : []),
    ...(report.rules.some(({ actors }) => actors.some(({ isFallback }) => isFallback))
      ? [`${FALLBACK}: these requests had no such actor, so their device counted instead.`]
      : []),
    "A second: of the requests that the rule let pass, delayed or refused, the mean over the whole log, and the busiest second.",
    "Worst window: the most requests that passed in any time as long as the limit's.",
    "A log cannot show how clients would have reacted to a refusal or a wait: the replay sends their requests as they were.",
  ];
  return `<footer>${notes.map((note) => `<p>${note}</p>`).join("")}</footer>`;
}

function table(first: string, columns: readonly string[], rows: readonly string[]): string {
  const heads = columns.map((column) => `<th scope="col">${escapeHtml(column)}</th>`).join("");
  // the keyboard scrolls what has the focus
  return `<div class="table" tabindex="0" role="region" aria-label="${escapeHtml(first)}"><table>
<thead><tr><th scope="col">${escapeHtml(first)}</th>${heads}</tr></thead>
<tbody>
${rows.join("\n")}
</tbody>
</table></div>`;
}

/** @param first is HTML */
function row(first: string, cells: readonly string[]): string {
  return `<tr><th scope="row">${first}</th>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
}

function rate({ rpu, periodMs }: RuleReport): string {
  return `${rpu} in ${duration(periodMs)}`;
}

const ESCAPES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Logs contain text from unknown clients. */
function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ESCAPES[char] ?? char);
}
