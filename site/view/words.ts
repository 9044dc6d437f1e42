import { algorithmOf } from "../model/algorithms.ts";
import { type Series, summaryOf, tenantsOf } from "../model/simulate.ts";
import { whyInWords } from "../model/why.ts";

/** What happened until an instant, for readers who cannot see the charts. */
export function inWords(series: Series, atMs: number): string {
  const sums = summaryOf(series, atMs);
  const level = series.samples.findLast((sample) => sample.atMs <= atMs)?.level ?? 0;
  const tenants = tenantsOf(series.calls);
  const shares = tenants.map((tenant) => {
    const calls = series.calls.filter((call) => call.tenant === tenant);
    const { granted, waiting } = summaryOf({ ...series, calls }, atMs);
    return `${tenant} ${granted}${waiting > 0 ? ` (${waiting} waiting)` : ""}`;
  });
  const words = [
    `After ${(atMs / 1000).toFixed(2)} s: ${sums.arrived} arrived, ${sums.granted} granted, ${sums.waiting} waiting, ${sums.refused} refused.`,
    `Longest wait ${Math.round(sums.longestWaitMs)} ms, most in any second ${sums.mostInASecond}.`,
    atMs >= series.seconds * 1000 ? whyInWords(series) : "",
    `Now ${algorithmOf(series.algorithm).state}: ${Math.round(level * 100) / 100}.`,
    tenants.length > 1 ? `Granted by caller: ${shares.join(", ")}.` : "",
    series.leftOut > 0
      ? `Only the first ${series.calls.length} of ${series.calls.length + series.leftOut} requests are sent, so that the page stays quick.`
      : "",
    series.error ?? "",
  ];
  return words.filter(Boolean).join(" ");
}
