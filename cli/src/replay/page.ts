/**
 * The style sheet of the HTML report, and the script that draws its plots, as text for the browser.
 */

export const PAGE_STYLE = `
:root {
  color-scheme: light dark;
  --page: #f6f6f4; --card: #ffffff; --ink: #1a1a19; --soft: #62615c; --line: #e3e2dd;
  --passed: #2a78d6; --waited: #e0a100; --refused: #d93f3e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #141413; --card: #1e1e1c; --ink: #f2f1ed; --soft: #a3a199; --line: #34332f;
    --passed: #3f8ae4; --waited: #d19a13; --refused: #e8615f;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .25rem 0 1rem; color: var(--soft); }
section, .table, .tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
section { padding: 1rem; margin-top: 1.5rem; }
section .table { border: 0; margin-top: 1rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .75rem; margin-bottom: 1.5rem; }
.tile { padding: .75rem 1rem; border-top: 4px solid var(--soft); }
.tile b { display: block; font-size: 1.6rem; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); }
.tile.passed { border-top-color: var(--passed); }
.tile.waited { border-top-color: var(--waited); }
.tile.refused { border-top-color: var(--refused); }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .4rem .6rem; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child { text-align: left; }
thead th { white-space: normal; vertical-align: bottom; color: var(--soft); font-weight: 500; }
tbody th { font-weight: 500; }
tbody tr { border-top: 1px solid var(--line); }
a { color: inherit; }
em { color: var(--soft); }
.plot { min-height: 260px; }
.caption { margin: 0 0 .5rem; font-size: .85rem; }
@media (max-width: 40rem) {
  main { padding: 1rem .5rem; }
  th, td { padding: .4rem .5rem; }
  th:first-child { position: sticky; left: 0; background: var(--card); min-width: 8rem; max-width: 50vw; white-space: normal; overflow-wrap: anywhere; }
}
.u-legend { color: var(--soft); font-size: .85rem; }
footer { margin-top: 2rem; font-size: .85rem; }
`;

export const PAGE_SCRIPT = `
const plots = JSON.parse(document.getElementById("plots").textContent);
const parts = ["passed", "waited", "refused"];
const drawn = [];

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function timeOf(seconds) {
  return new Date(seconds * 1000).toISOString();
}

/* Each part stands on those before it; the highest is painted first. */
function draw(place) {
  const { startMs, stepMs, counts, peaks, limit, zoneMinutes, zone } = plots[Number(place.dataset.plot)];
  const perSecond = (count) => (count * 1000) / stepMs;
  /* in the log's own zone, which is drawn as if it were UTC */
  const times = counts.passed.map((_, i) => (startMs + i * stepMs) / 1000 + zoneMinutes * 60);
  let below = times.map(() => 0);
  const stacked = parts.map((part) => (below = counts[part].map((n, i) => below[i] + perSecond(n))));
  const rateText = (n) => (n === null || n === undefined ? "" : n.toFixed(n < 10 ? 2 : 0) + "/s");
  const stepped = uPlot.paths.stepped({ align: 1 });
  const series = parts.map((part) => ({
    label: part,
    stroke: color(part),
    fill: color(part),
    width: 1,
    paths: stepped,
    points: { show: false },
    value: (_, __, ___, i) => (i === null ? "" : rateText(perSecond(counts[part][i]))),
  }));
  /* the date stands below the first time and at each midnight */
  const timeText = (_, ticks, __, ___, step) =>
    ticks.map((tick, i) => {
      const text = timeOf(tick);
      const time = step < 60 ? text.slice(11, 19) : text.slice(11, 16);
      if (step >= 86400) return text.slice(0, 10);
      return i === 0 || tick % 86400 === 0 ? time + "\\n" + text.slice(0, 10) : time;
    });
  const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 } };
  const data = [times, ...stacked.toReversed()];
  const all = [{ label: "time", value: (_, seconds) => (seconds === null ? "" : timeOf(seconds).slice(0, 19).replace("T", " ")) }, ...series.toReversed()];
  if (stepMs > 1000) {
    data.push(peaks);
    all.push({ label: "busiest second", stroke: color("soft"), width: 1, paths: stepped, points: { show: false }, value: (_, n) => rateText(n) });
  }
  if (limit !== null) {
    data.push(times.map(() => limit));
    all.push({ label: "limit", stroke: color("ink"), dash: [6, 4], width: 1.5, points: { show: false }, value: (_, n) => rateText(n) });
  }
  const options = {
    width: place.clientWidth,
    height: 240,
    cursor: { sync: { key: "log" }, y: false, points: { show: false } },
    scales: { x: { range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) }, y: { range: (_, low, high) => [0, Math.max(1e-6, high) * 1.08] } },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    axes: [{ ...axis, label: "time, " + zone, space: 80, values: timeText }, { ...axis, label: "requests per second", size: 64, values: (_, ticks) => ticks.map((tick) => tick + "/s") }],
    series: all,
  };
  return new uPlot(options, data, place);
}

function drawAll() {
  for (const plot of drawn.splice(0)) plot.destroy();
  for (const place of document.querySelectorAll("[data-plot]")) {
    if (plots[Number(place.dataset.plot)].counts.passed.length > 0) drawn.push(draw(place));
    else place.textContent = "no requests";
  }
}

drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  for (const plot of drawn) plot.setSize({ width: plot.root.parentElement.clientWidth, height: 240 });
});
`;
