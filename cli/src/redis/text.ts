/** Limiters on Redis as text. */
import Table from "cli-table3";
import { type Colors, printable } from "../io.ts";
import { duration, number, some } from "../words.ts";
import type { ConcurrencyEntry, Entry, PolicyEntry, RateEntry, RegionsEntry } from "./entries.ts";

/** The lines of a table, which are left out. */
const EDGES =
  "top top-mid top-left top-right bottom bottom-mid bottom-left bottom-right left left-mid mid mid-mid right right-mid";
const NO_LINES = {
  ...Object.fromEntries(EDGES.split(" ").map((edge) => [edge, ""])),
  middle: "  ",
};

/** A line for each limiter, and for each of its policies. */
export function tableOf(entries: readonly Entry[], more: number, colors: Colors): string {
  const table = new Table({
    head: ["key", "what", "limit", "left", "next", "full"].map((head) => colors.bold(head)),
    chars: NO_LINES,
    style: { head: [], border: [], "padding-left": 0, "padding-right": 0 },
  });
  for (const entry of entries) table.push(...rowsOf(entry, colors));
  const foreign = entries.filter(({ kind }) => kind === "foreign").length;
  const others = foreign > 0 ? `, ${some(foreign, "other key")}` : "";
  const sum = `${some(entries.length + more - foreign, "limiter")}${others}`;
  const rest = more > 0 ? `, ${number(more)} not shown: --top` : "";
  return entries.length === 0 ? "no limiters" : `${table.toString()}\n${sum}${rest}`;
}

function rowsOf(entry: Entry, colors: Colors): string[][] {
  const key = printable(entry.key);
  if (entry.kind === "foreign") return [[key, colors.red("not a limiter"), "", "", "", ""]];
  if (entry.kind === "concurrency") {
    const limit = limitOf(entry);
    const next = entry.waiting.length > 0 ? colors.yellow(`${entry.waiting.length} wait`) : "";
    return [[key, "at once", limit, `${sum(entry.held)} held`, next, ""]];
  }
  if (entry.kind === "regions") return [[key, "regions", fractionsOf(entry), "", "", ""]];
  const next = entry.waitMs === null ? "never" : waitOf(entry.waitMs);
  return entry.policies.map((policy, i) => [
    i === 0 ? key : "",
    policy.algorithm,
    rateText(policy, entry),
    `${round(policy.remaining)} of ${round(policy.limit)}`,
    i > 0 ? "" : entry.waitMs === 0 ? next : colors.yellow(next),
    waitOf(policy.resetMs),
  ]);
}

/** What each region has, its processes together; not those that are gone. */
function fractionsOf({ parts, nowMs }: RegionsEntry): string {
  const held = new Map<string, number>();
  const live = parts.filter(({ lapsesMs }) => lapsesMs > nowMs);
  for (const part of live) held.set(part.region, (held.get(part.region) ?? 0) + part.held);
  const texts = [...held].map(([region, fraction]) => `${printable(region)} ${percent(fraction)}`);
  return texts.sort().join(", ") || "reserves";
}

/** How many slots the leases hold. */
function sum(leases: readonly { readonly slots: number }[]): number {
  return leases.reduce((slots, lease) => slots + lease.slots, 0);
}

/** All that is known of a limiter. */
export function describe(entry: Entry): string {
  const { nowMs } = entry;
  const lines = [printable(entry.key)];
  if (entry.kind === "foreign") {
    lines.push(`  not the state of a limiter: ${printable(entry.why)}`);
  } else if (entry.kind === "concurrency") {
    lines.push(`  limits how many run at once: ${limitOf(entry)}`);
    for (const { declared, inForce } of entry.limits) {
      lines.push(`  code that declares ${declared} has ${inForce}, set at run time`);
    }
    for (const [what, leases] of [
      ["held", entry.held],
      ["waited for", entry.waiting],
    ] as const) {
      for (const { process, lapsesMs, slots } of leases) {
        const left = duration(Math.max(0, Math.round(lapsesMs - nowMs)));
        const many = slots > 1 ? `${slots} slots ` : "";
        lines.push(
          `  ${many}${what} by process ${printable(process)}, expires in ${left} unless renewed`,
        );
      }
    }
  } else if (entry.kind === "regions" && !entry.key.includes("[")) {
    const where = `${lines[0]}[, of .for(key) with the key behind it`;
    lines.push(`  says only since when regions divide this limit: their parts are under ${where}`);
  } else if (entry.kind === "regions") {
    lines.push("  parts of this limit, beside the reserves of the regions");
    for (const { region, process, held, coming, demand, lapsesMs } of entry.parts) {
      const soon = percent(coming);
      const more = soon === percent(0) ? "" : `, and soon ${soon} more`;
      const leftMs = Math.round(lapsesMs - nowMs);
      const lease =
        leftMs > 0 ? `expires in ${duration(leftMs)} unless renewed` : "its lease is over";
      const holds = `${percent(held)}${more}, asks for ${percent(demand)}`;
      const whose = `${printable(region)}, process ${printable(process)}`;
      lines.push(`  ${whose}: ${holds}, ${lease}`);
    }
    if (entry.parts.length === 0) lines.push("  no process has one: each region has its reserve");
    const closed = Math.round(entry.closedUntilMs - nowMs);
    if (closed > 0)
      lines.push(`  no process gets more for ${duration(closed)}: data is new or was lost`);
  } else {
    lines.push(`  last written ${duration(Math.max(0, Math.round(nowMs - entry.writtenMs)))} ago`);
    for (const policy of entry.policies) {
      lines.push(`  ${policy.algorithm}: ${rateText(policy, entry)}`);
      const left = `${round(policy.remaining)} of ${round(policy.limit)}`;
      lines.push(`    ${left} permits left now, all of them ${whenOf(policy.resetMs)}`);
    }
    const wait = entry.waitMs === null ? "never passes" : `passes ${whenOf(entry.waitMs)}`;
    lines.push(`  a request for one permit ${wait}`);
  }
  return lines.join("\n");
}

function rateText({ declaredRate, rate }: PolicyEntry, { isSet }: RateEntry): string {
  const set = isSet && rate !== declaredRate ? `, set; declared ${perSecond(declaredRate)}` : "";
  return `${perSecond(rate)}${set}`;
}

function limitOf({ held, waiting, limits }: ConcurrencyEntry): string {
  const declared = new Set([...held, ...waiting].map((lease) => lease.declared));
  const texts = [...declared]
    .sort((a, b) => a - b)
    .map((limit) => {
      const set = limits.find((each) => each.declared === limit);
      return set === undefined ? `${limit}` : `${set.inForce}, set; declared ${limit}`;
    });
  return texts.join(" or ") || limits.map(({ inForce }) => `${inForce}, set`).join(" or ");
}

function waitOf(ms: number): string {
  return ms === 0 ? "now" : duration(Math.round(ms * 100) / 100);
}

/** The same in a sentence. */
function whenOf(ms: number): string {
  return ms === 0 ? "now" : `in ${waitOf(ms)}`;
}

/** Below 1 with four digits: with three decimal places one permit an hour would be 0 a second. */
function perSecond(rate: number): string {
  return `${rate < 1 ? Number(rate.toPrecision(4)) : round(rate)}/s`;
}

function percent(fraction: number): string {
  return `${number(Number((100 * fraction).toFixed(1)))} %`;
}

function round(value: number): string {
  return number(Number(value.toPrecision(6)));
}
