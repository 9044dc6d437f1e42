// The playground of concurrency limits: the limit and the latency over time while the server loses and gains workers.

import {
  type ConcurrencySettings,
  FIELDS,
  fromQuery,
  inWords,
  LIMITS,
  type LimitKind,
  SECONDS,
  SERVERS,
  type ServerKind,
  simulate,
  toQuery,
  toTypeScript,
} from "../model/concurrency.ts";
import { drawLines } from "./chart.ts";
import { codeBlock, copied } from "./code-block.ts";
import { button, choice, make, slider } from "./dom.ts";

/** The address of the page changes after a pause: browsers refuse changes that come too often. */
const URL_PAUSE_MS = 250;

/** Fills the place with the playground. */
export function mount(place: HTMLElement): () => void {
  let settings = fromQuery(location.search);
  let urlTimer: ReturnType<typeof setTimeout> | undefined;
  let isDue = false;
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
  const results = make(
    "section",
    { class: "pg-results", "aria-label": "What happens" },
    make("div", { class: "pg-time" }, link),
    summary,
    charts,
    code,
  );
  const columns = make("div", { class: "pg-columns" }, controls, results);

  const draw = () => {
    const run = simulate(settings);
    // on a phone the charts have no box of their own
    const width = Math.max(280, Math.floor(charts.clientWidth || columns.clientWidth));
    const pictures = [
      [
        "The limit (blue) and the server's workers (dashed)",
        drawLines("The limit and the number of workers over time", SECONDS, width, [
          { name: "pg-bound", values: run.workers },
          { name: "pg-sum", values: run.limits },
        ]),
      ],
      [
        "How long a call takes, ms (blue), and without a queue (dashed)",
        drawLines("Latency over time, ms", SECONDS, width, [
          { name: "pg-bound", values: run.latenciesMs.map(() => settings.numbers.serviceMs ?? 0) },
          { name: "pg-sum", values: run.latenciesMs },
        ]),
      ],
    ];
    charts.innerHTML = pictures
      .map(([title, chart]) => `<figure><figcaption>${title}</figcaption>${chart}</figure>`)
      .join("");
    summary.textContent = inWords(settings, run);
  };
  /** Shows what is chosen now. Sliders change faster than the screen. */
  const update = () => {
    clearTimeout(urlTimer);
    urlTimer = setTimeout(() => {
      history.replaceState(history.state, "", `?${toQuery(settings)}`);
    }, URL_PAUSE_MS);
    code.replaceChildren(codeBlock("TypeScript", toTypeScript(settings)));
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      if (!signal.aborted) draw();
    });
  };
  const set = (part: Partial<ConcurrencySettings>) => {
    settings = { ...settings, ...part };
    update();
  };
  const fieldOf = (wanted: string) =>
    FIELDS.filter(({ name }) => name === wanted).map((field) =>
      slider(field, settings.numbers[wanted] ?? field.initial, (value) =>
        set({ numbers: { ...settings.numbers, [wanted]: value } }),
      ),
    );
  const showControls = () => {
    const limits = choice("the limit is", LIMITS, settings.limit, (limit) => {
      set({ limit: limit as LimitKind });
      fixed.hidden = settings.limit !== "fixed";
    });
    const fixed = make("div", {}, ...fieldOf("fixed"));
    fixed.hidden = settings.limit !== "fixed";
    const server = choice("a busy server", SERVERS, settings.server, (kind) =>
      set({ server: kind as ServerKind }),
    );
    controls.replaceChildren(
      make("fieldset", {}, make("legend", {}, "Limit"), limits, fixed),
      make(
        "fieldset",
        {},
        make("legend", {}, "Server"),
        server,
        ...["workers", "between", "serviceMs"].flatMap(fieldOf),
      ),
    );
  };

  place.replaceChildren(
    make(
      "div",
      { class: "pg" },
      make("h1", {}, "Playground: a concurrency limit that finds itself"),
      make(
        "p",
        {},
        "A hundred callers call a server that loses and gains workers, through a ConcurrencyLimiter. The library itself runs in this page, in virtual time.",
      ),
      columns,
    ),
  );
  window.addEventListener(
    "popstate",
    () => {
      settings = fromQuery(location.search);
      showControls();
      update();
    },
    { signal },
  );
  const resized = new ResizeObserver(() => update());
  resized.observe(columns);
  signal.addEventListener("abort", () => {
    clearTimeout(urlTimer);
    resized.disconnect();
  });
  showControls();
  update();
  return () => ending.abort();
}
