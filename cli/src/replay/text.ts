import Table from "cli-table3";
import { type Colors, colorsOf, type Io, printable } from "../io.ts";
import { duration, number, rounded, share, some } from "../words.ts";
import type { Replayed, RuleReport } from "./report.ts";

type Row = readonly string[];

/** The report as text for a terminal. */
export function textReport(replayed: Replayed, io: Io): string {
  const colors = colorsOf(io, io.stdout);
  const { report } = replayed;
  const parts = [summary(replayed, colors)];
  if (report.rules.length > 0) parts.push(ruleTable(report.rules, colors));
  for (const rule of report.rules) {
    if (rule.actors.length > 0) parts.push(actorTable(rule, colors));
  }
  return `${parts.join("\n\n")}\n`;
}

function summary(
  { rulesFrom, log, lines, unread, late, report }: Replayed,
  colors: Colors,
): string {
  const { requests, passed, waited, refused, withoutRule, firstMs, lastMs } = report;
  const part = (count: number) => `${number(count)} (${share(count, requests)})`;
  const notes = [
    ...(withoutRule > 0 ? [`${part(withoutRule)} matched no rule`] : []),
    ...(unread > 0 ? [`${number(unread)} of ${number(lines)} lines were not requests`] : []),
    ...(late > 0 ? [`${some(late, "line")} out of order by more than --hold: played late`] : []),
  ];
  return [
    colors.bold(`${printable(log)} by ${printable(rulesFrom)}`),
    `${new Date(firstMs).toISOString()} to ${new Date(lastMs).toISOString()}`,
    `${some(requests, "request")}: ${colors.green(part(passed))} passed at once, ${colors.yellow(part(waited))} waited, ${colors.red(part(refused))} refused`,
    ...notes,
  ].join("\n");
}

function ruleTable(rules: readonly RuleReport[], colors: Colors): string {
  const head = [
    "rule",
    "requests",
    "passed",
    "waited",
    "refused",
    "elsewhere",
    "a second: mean, peak",
    "wait: mean, longest",
    "worst",
    "of one",
    "limit",
  ];
  return table(
    head,
    rules.map((rule) => [
      printable(rule.mode === "shadow" ? `${rule.name} (shadow)` : rule.name),
      number(rule.requests),
      number(rule.passed),
      number(rule.waited),
      rule.refused > 0 ? colors.red(number(rule.refused)) : "0",
      number(rule.refusedElsewhere),
      `${rounded(rule.perSecond.mean)}, ${number(rule.perSecond.peak)}`,
      rule.waited > 0 ? `${duration(rule.wait.meanMs)}, ${duration(rule.wait.longestMs)}` : "",
      number(rule.mostInWindow),
      number(rule.mostOfOneActor),
      `${rule.rpu} in ${duration(rule.periodMs)}`,
    ]),
    colors,
  );
}

function actorTable(rule: RuleReport, colors: Colors): string {
  const head = [
    `${printable(rule.actor)} of ${printable(rule.name)}`,
    "requests",
    "passed",
    "waited",
    "refused",
    "worst",
  ];
  const rows = rule.actors.map((one) => [
    `${one.actor === "" ? "(none)" : printable(one.actor).slice(0, 60)}${one.isFallback ? " (device)" : ""}`,
    number(one.requests),
    number(one.passed),
    number(one.waited),
    one.refused > 0 ? colors.red(number(one.refused)) : "0",
    number(one.mostInWindow),
  ]);
  return table(head, rows, colors);
}

function table(head: Row, rows: readonly Row[], colors: Colors): string {
  const made = new Table({
    head: head.map((title) => colors.bold(title)),
    colAligns: head.map((_, i) => (i === 0 ? "left" : "right")),
    style: { head: [], border: [], compact: true },
  });
  for (const row of rows) made.push([...row]);
  return made.toString();
}
