import Table from "cli-table3";
import { type Colors, colorsOf, type Io, printable } from "../io.ts";
import { number, share, some } from "../words.ts";
import type { Replayed, RuleReport } from "./report.ts";
import { ACTOR_COLUMNS, actorCells, notesOf, REFUSED, RULE_COLUMNS, ruleCells } from "./tables.ts";

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

function summary(replayed: Replayed, colors: Colors): string {
  const { rulesFrom, log, report } = replayed;
  const { requests, passed, waited, refused, withoutRule, firstMs, lastMs } = report;
  const part = (count: number) => `${number(count)} (${share(count, requests)})`;
  return [
    colors.bold(`${printable(log)} by ${printable(rulesFrom)}`),
    `${new Date(firstMs).toISOString()} to ${new Date(lastMs).toISOString()}`,
    `${some(requests, "request")}: ${colors.green(part(passed))} passed at once, ${colors.yellow(part(waited))} waited, ${colors.red(part(refused))} refused`,
    ...(withoutRule > 0 ? [`${part(withoutRule)} matched no rule`] : []),
    ...notesOf(replayed),
  ].join("\n");
}

function ruleTable(rules: readonly RuleReport[], colors: Colors): string {
  const rows = rules.map((rule) => {
    const name = printable(rule.mode === "shadow" ? `${rule.name} (shadow)` : rule.name);
    return [name, ...painted(ruleCells(rule), colors)];
  });
  return table(["rule", ...RULE_COLUMNS], rows, colors);
}

function actorTable(rule: RuleReport, colors: Colors): string {
  const rows = rule.actors.map((one) => {
    const name = one.actor === "" ? "(none)" : printable(one.actor).slice(0, 60);
    const cells = painted(actorCells(one), colors);
    return [`${name}${one.isFallback ? " (device)" : ""}`, ...cells];
  });
  const head = `${printable(rule.actor)} of ${printable(rule.name)}`;
  return table([head, ...ACTOR_COLUMNS], rows, colors);
}

function painted(cells: Row, colors: Colors): Row {
  return cells.map((cell, i) => (i === REFUSED && cell !== "0" ? colors.red(cell) : cell));
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
