// The page of a scene: what is simulated is chosen on one side; pictures, words and code of it stand on the other.

import { codeBlock, copied } from "./code-block.ts";
import { button, make } from "./dom.ts";

/** A slider moves faster than a browser lets the address of the page change, ms. */
const URL_PAUSE_MS = 250;

/** What a page simulates, with its words and controls. */
export interface Scene<Settings, Run> {
  readonly title: string;
  readonly intro: string;
  /** What the colours mean, where captions do not say it. */
  readonly legend: readonly Node[];
  /** A run is begun when nothing has been chosen for so long, ms. */
  readonly pauseMs: number;
  fromQuery(query: string): Settings;
  toQuery(settings: Settings): string;
  toTypeScript(settings: Settings): string;
  simulate(settings: Settings): Run | Promise<Run>;
  inWords(settings: Settings, run: Run): string;
  /** @returns captions, each with its chart */
  pictures(run: Run, settings: Settings, width: number): readonly (readonly [string, string])[];
  controls(settings: Settings, set: (part: Partial<Settings>) => void): readonly HTMLElement[];
}

/** Returns what fills a place with the page of a scene, and returns what ends it. */
export function pageOf<Settings, Run>(
  scene: Scene<Settings, Run>,
): (place: HTMLElement) => () => void {
  return (place) => {
    let settings = scene.fromQuery(location.search);
    let shown: readonly [Settings, Run] | undefined;
    let runTimer: ReturnType<typeof setTimeout> | undefined;
    let urlTimer: ReturnType<typeof setTimeout> | undefined;
    const ending = new AbortController();
    const { signal } = ending;
    const controls = make("form", { class: "pg-controls", "aria-label": "What to simulate" });
    controls.addEventListener("submit", (event) => event.preventDefault());
    const charts = make("div", { class: "pg-charts" });
    const summary = make("p", { class: "pg-summary", role: "status" });
    const code = make("div", { class: "pg-code" });
    const link = button("Copy link", async () => {
      const url = `${location.origin}${location.pathname}?${scene.toQuery(settings)}`;
      await copied(link, url, "Copy the address");
    });
    const results = make(
      "section",
      { class: "pg-results", "aria-label": "What happens" },
      make("div", { class: "pg-time" }, link),
      summary,
      ...scene.legend,
      charts,
      code,
    );
    const columns = make("div", { class: "pg-columns" }, controls, results);

    const draw = () => {
      if (shown === undefined) return;
      const [of, run] = shown;
      // on a phone the charts have no box of their own
      const width = Math.max(280, Math.floor(charts.clientWidth || columns.clientWidth));
      charts.innerHTML = scene
        .pictures(run, of, width)
        .map(([caption, chart]) => `<figure><figcaption>${caption}</figcaption>${chart}</figure>`)
        .join("");
    };
    const run = async () => {
      const wanted = settings;
      const result = await scene.simulate(wanted);
      if (signal.aborted || wanted !== settings) return;
      shown = [wanted, result];
      draw();
      summary.textContent = scene.inWords(wanted, result);
    };
    /** Shows what is chosen now. */
    const update = () => {
      clearTimeout(urlTimer);
      urlTimer = setTimeout(() => {
        history.replaceState(history.state, "", `?${scene.toQuery(settings)}`);
      }, URL_PAUSE_MS);
      code.replaceChildren(codeBlock("TypeScript", scene.toTypeScript(settings)));
      clearTimeout(runTimer);
      runTimer = setTimeout(run, scene.pauseMs);
    };
    const show = () => {
      controls.replaceChildren(
        ...scene.controls(settings, (part) => {
          settings = { ...settings, ...part };
          update();
        }),
      );
      update();
    };

    place.replaceChildren(
      make(
        "div",
        { class: "pg" },
        make("h1", {}, scene.title),
        make("p", {}, scene.intro),
        columns,
      ),
    );
    const chosen = () => {
      settings = scene.fromQuery(location.search);
      show();
    };
    window.addEventListener("popstate", chosen, { signal });
    const resized = new ResizeObserver(draw);
    resized.observe(columns);
    signal.addEventListener("abort", () => {
      clearTimeout(runTimer);
      clearTimeout(urlTimer);
      resized.disconnect();
    });
    show();
    return () => ending.abort();
  };
}
