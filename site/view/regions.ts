// The playground of regions: the parts of three regions and what all of them are granted, over time.

import {
  EVENTS,
  type EventKind,
  FIELDS,
  fromQuery,
  inWords,
  REGIONS,
  type RegionsRun,
  type RegionsSettings,
  SECONDS,
  simulate,
  toQuery,
  toTypeScript,
} from "../model/regions.ts";
import { drawLines } from "./chart.ts";
import { codeBlock, copied } from "./code-block.ts";
import { button, choice, make, slider } from "./dom.ts";

/** The address of the page changes, and what is chosen is run, after a pause: sliders change fast. */
const PAUSE_MS = 250;

/** Fills the place with the playground. */
export function mount(place: HTMLElement): () => void {
  let settings = fromQuery(location.search);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let shown: RegionsRun | undefined;
  const ending = new AbortController();
  const { signal } = ending;
  const controls = make("form", { class: "pg-controls", "aria-label": "What to simulate" });
  controls.addEventListener("submit", (event) => event.preventDefault());
  const charts = make("div", { class: "pg-charts" });
  const summary = make("p", { class: "pg-summary", role: "status" });
  const code = make("div", { class: "pg-code" });
  const link = button("Copy link", async () => {
    const url = `${location.origin}${location.pathname}?${toQuery(settings)}`;
    await copied(link, url, "Copy the address");
  });
  const legend = make(
    "p",
    { class: "pg-legend" },
    ...REGIONS.map((region, i) => make("span", { class: `pg-tenant-${i}` }, `\u25a0 ${region}`)),
  );
  const results = make(
    "section",
    { class: "pg-results", "aria-label": "What happens" },
    make("div", { class: "pg-time" }, link),
    summary,
    legend,
    charts,
    code,
  );
  const columns = make("div", { class: "pg-columns" }, controls, results);

  const draw = () => {
    if (shown === undefined) return;
    const { fractions, asked, granted, bound } = shown;
    // on a phone the charts have no box of their own
    const width = Math.max(280, Math.floor(charts.clientWidth || columns.clientWidth));
    const parts = REGIONS.map((_, i) => ({
      name: `pg-share pg-tenant-${i}`,
      values: fractions.map((each) => 100 * (each[i] ?? 0)),
    }));
    const pictures = [
      [
        "The part of the limit that each region has, %",
        drawLines("The part of each region over time, %", SECONDS, width, parts),
      ],
      [
        "All regions together: asked for (grey), granted (blue), and the bound of the limit (dashed)",
        drawLines("Sums of permits of all regions over time", SECONDS, width, [
          { name: "pg-arrived", values: asked },
          { name: "pg-bound", values: bound },
          { name: "pg-sum", values: granted },
        ]),
      ],
    ];
    charts.innerHTML = pictures
      .map(([title, chart]) => `<figure><figcaption>${title}</figcaption>${chart}</figure>`)
      .join("");
  };
  const run = async () => {
    const wanted = settings;
    history.replaceState(history.state, "", `?${toQuery(wanted)}`);
    const result = await simulate(wanted);
    if (signal.aborted || wanted !== settings) return;
    shown = result;
    draw();
    summary.textContent = inWords(wanted, result);
  };
  /** Shows what is chosen now. */
  const update = (pauseMs = PAUSE_MS) => {
    clearTimeout(timer);
    code.replaceChildren(codeBlock("TypeScript", toTypeScript(settings)));
    timer = setTimeout(run, pauseMs);
  };
  const set = (part: Partial<RegionsSettings>) => {
    settings = { ...settings, ...part };
    update();
  };
  const showControls = () => {
    const sliders = FIELDS.map((field) =>
      slider(field, settings.numbers[field.name] ?? field.initial, (value) =>
        set({ numbers: { ...settings.numbers, [field.name]: value } }),
      ),
    );
    const event = choice("from 10 s to 20 s", EVENTS, settings.event, (kind) =>
      set({ event: kind as EventKind }),
    );
    controls.replaceChildren(
      make("fieldset", {}, make("legend", {}, "What happens"), event),
      make("fieldset", {}, make("legend", {}, "Numbers"), ...sliders),
    );
  };

  place.replaceChildren(
    make(
      "div",
      { class: "pg" },
      make("h1", {}, "Playground: one limit over three regions"),
      make(
        "p",
        {},
        "Three regions share a limit through a RegionalLimiter: each decides by itself, and their parts follow the demand. The library itself runs in this page, in virtual time.",
      ),
      columns,
    ),
  );
  window.addEventListener(
    "popstate",
    () => {
      settings = fromQuery(location.search);
      showControls();
      update(0);
    },
    { signal },
  );
  const resized = new ResizeObserver(draw);
  resized.observe(columns);
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    resized.disconnect();
  });
  showControls();
  update(0);
  return () => ending.abort();
}
