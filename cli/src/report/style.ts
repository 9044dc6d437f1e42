/** The style sheet of the HTML report. */
export const STYLE = `
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
.chart-caption, .chart-legend { margin: .5rem 0; font-size: .85rem; }
.chart-legend span { margin-right: .75rem; }
.chart-legend span::before { content: "\\25a0  "; }
.chart-legend .chart-passed::before { color: var(--passed); }
.chart-legend .chart-waited::before { color: var(--waited); }
.chart-legend .chart-refused::before { color: var(--refused); }
.chart-legend .chart-peak::before { content: "\\2500  "; }
.chart-legend .chart-limit::before { content: "\\2504  "; color: var(--ink); }
.chart { display: block; width: 100%; height: auto; }
.chart text { fill: var(--soft); font-size: 9px; }
.chart path { fill: none; }
.chart .chart-axis { stroke: var(--line); }
.chart .chart-passed { fill: var(--passed); }
.chart .chart-waited { fill: var(--waited); }
.chart .chart-refused { fill: var(--refused); }
.chart .chart-peak { stroke: var(--soft); }
.chart .chart-limit { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 6 4; }
.chart .chart-hover { fill: transparent; }
.chart .chart-hover:hover { fill: var(--soft); opacity: .25; }
@media (max-width: 40rem) {
  main { padding: 1rem .5rem; }
  section { padding: 1rem .5rem; }
  /* a phone shows a chart at half its size */
  .chart text { font-size: 20px; }
  th, td { padding: .4rem .5rem; }
  th:first-child { position: sticky; left: 0; background: var(--card); min-width: 8rem; max-width: 50vw; white-space: normal; overflow-wrap: anywhere; }
}
footer { margin-top: 2rem; font-size: .85rem; }
`;
