// The playground: what the user chooses, and what it makes of the charts, the code and the URL.

import { drawRule, escaped } from "../../cli/src/report/chart.ts";
import type { Replayed } from "../../cli/src/report/report.ts";
import { readAccessLog } from "../model/access-log.ts";
import {
  ALGORITHM_NAMES,
  type AlgorithmName,
  algorithmOf,
  initialNumbers,
  sameNumbers,
  sameOnSliders,
} from "../model/algorithms.ts";
import { toPolicy, toTypeScript, toYaml } from "../model/code.ts";
import { readReplayed, sumsOf } from "../model/replayed.ts";
import {
  COMMON,
  type Comparison,
  comparisonOf,
  fromQuery,
  hasWeight,
  isFair,
  isShared,
  QUEUES,
  type Queue,
  type Settings,
  toQuery,
  VERBS,
  type Verb,
} from "../model/settings.ts";
import { live, type Series, setupOf, simulate, tenantsOf } from "../model/simulate.ts";
import { TRAFFIC_KINDS, type TrafficKind } from "../model/traffic.ts";
import { barEditor } from "./bar-editor.ts";
import { callTable } from "./call-table.ts";
import {
  drawCalls,
  drawShares,
  drawSlope,
  drawState,
  drawSums,
  drawWaiting,
  xOf,
} from "./chart.ts";
import { codeBlock, copied } from "./code-block.ts";
import { button, choice, make, slider } from "./dom.ts";
import { legend } from "./legend.ts";
import { inWords } from "./words.ts";

/** Of a longer log the first part is read, bytes: about 100 000 lines. */
const LONGEST_LOG = 20_000_000;
/** The address of the page changes after a pause: browsers refuse changes that come too often. */
const URL_PAUSE_MS = 250;
const NO_LOG = "Choose a file, or drop one on the page. A log is not part of the page's URL.";

const NAMES = Object.fromEntries(ALGORITHM_NAMES.map((name) => [name, name]));

/** Fills the place with the playground. */
export function mount(place: HTMLElement): () => void {
  const playground = new Playground(place);
  return () => playground.end();
}

class Playground {
  #settings: Settings = fromQuery(location.search);
  #series: Series | undefined;
  #other: Series | undefined;
  /** The report of a replay that is shown in place of a simulation. */
  #replayed: Replayed | undefined;
  #atMs = Infinity;
  #isStale = false;
  #isSimulating = false;
  #urlTimer: ReturnType<typeof setTimeout> | undefined;
  readonly #ending = new AbortController();
  #live: AbortController | undefined;
  #note = NO_LOG;
  readonly #controls = make("form", { class: "pg-controls", "aria-label": "What to simulate" });
  readonly #charts = make("div", { class: "pg-charts" });
  readonly #summary = make("p", { class: "pg-summary", role: "status" });
  readonly #scrubber = make("input", {
    type: "range",
    min: 0,
    step: 1,
    "aria-label": "Time shown, ms",
  });
  readonly #play = button("Play", () => this.#togglePlay());
  readonly #liveButton = button("Run live", () => this.#toggleLive());
  readonly #link = button("Copy link", async () => {
    const url = `${location.origin}${location.pathname}?${toQuery(this.#settings)}`;
    await copied(this.#link, url, "Copy the address");
  });
  readonly #columns: HTMLElement;
  readonly #send = button("Send a request", () => this.#sendOne?.("you"));
  readonly #code = make("div", { class: "pg-code" });
  readonly #table = make("details", { class: "pg-numbers" });
  readonly #results = make("section", { class: "pg-results", "aria-label": "What happens" });
  #sendOne: ((tenant: string) => void) | undefined;

  constructor(place: HTMLElement) {
    this.#controls.addEventListener("submit", (event) => event.preventDefault());
    this.#scrubber.addEventListener("input", () => this.#scrub(this.#scrubber.valueAsNumber));
    this.#send.hidden = true;
    this.#results.append(
      make(
        "div",
        { class: "pg-time" },
        this.#play,
        this.#liveButton,
        this.#link,
        this.#send,
        this.#scrubber,
      ),
      this.#summary,
      this.#charts,
      this.#code,
      this.#table,
    );
    this.#columns = make("div", { class: "pg-columns" }, this.#controls, this.#results);
    place.replaceChildren(
      make(
        "div",
        { class: "pg" },
        make("h1", {}, "Playground"),
        make(
          "p",
          {},
          "Choose a limiter and its traffic. The library itself runs in this page, in virtual time, so you see the result at once. To replay an access log, drop it on the page; a report of ",
          make("code", {}, "smooth-limiter replay --json"),
          " opens here, too. ",
          make(
            "a",
            { href: `${import.meta.env.BASE_URL}playground-concurrency.html` },
            "How many calls may run at once",
          ),
          " has a page of its own.",
        ),
        this.#columns,
      ),
    );
    const { signal } = this.#ending;
    window.addEventListener("dragover", (event) => event.preventDefault(), { signal });
    window.addEventListener(
      "drop",
      (event) => {
        event.preventDefault();
        const [file] = event.dataTransfer?.files ?? [];
        if (file !== undefined) void this.#readLog(file);
      },
      { signal },
    );
    window.addEventListener("popstate", () => this.#change(fromQuery(location.search)), { signal });
    const resized = new ResizeObserver(() => this.#draw());
    resized.observe(this.#columns);
    signal.addEventListener("abort", () => resized.disconnect());
    this.#showControls();
    this.#update();
  }

  end(): void {
    clearTimeout(this.#urlTimer);
    this.#live?.abort();
    this.#ending.abort();
  }

  /** Takes over settings that show other controls. */
  #change(settings: Settings): void {
    const focused = document.activeElement;
    const index = [...this.#controls.querySelectorAll("select, input")].indexOf(focused as Element);
    this.#settings = settings;
    this.#showControls();
    this.#controls.querySelectorAll<HTMLElement>("select, input")[index]?.focus();
    this.#update();
  }

  #set(part: Partial<Settings>): void {
    this.#settings = { ...this.#settings, ...part };
    this.#update();
  }

  #setCommon(name: string, value: number): void {
    this.#set({ common: { ...this.#settings.common, [name]: value } });
  }

  #showControls(): void {
    const settings = this.#settings;
    const { algorithm, numbers, verb, queue, traffic, common, bars, log, logFrom } = settings;
    const { seconds = 0 } = common;
    const logSeconds = Math.floor((log.at(-1)?.atMs ?? 0) / 1000) + 1;
    const otherQueue = isShared(settings) ? { queue: otherQueueOf(settings) } : {};
    const group = (title: string, ...fields: readonly HTMLElement[]) =>
      make("fieldset", {}, make("legend", {}, title), ...fields);
    const commons = (...names: readonly string[]) =>
      COMMON.filter(({ name }) => names.includes(name)).map((field) =>
        slider(field, common[field.name] ?? field.initial, (value) =>
          this.#setCommon(field.name, value),
        ),
      );
    const limiterFields = algorithmOf(algorithm).fields.map((field) =>
      slider(field, numbers[field.name] ?? field.initial, (value) =>
        this.#set({ numbers: { ...this.#settings.numbers, [field.name]: value } }),
      ),
    );
    const file = make("input", { type: "file", id: "pg-log", accept: ".log,.txt,.json,.jsonl" });
    file.addEventListener("change", () => {
      const [chosen] = file.files ?? [];
      if (chosen !== undefined) void this.#readLog(chosen);
    });
    const trafficFields: Readonly<Record<TrafficKind, readonly HTMLElement[]>> = {
      steady: commons("rps"),
      bursts: commons("rps", "size"),
      cold: commons("rps"),
      tenants: commons("rps", "size"),
      three: commons("rps", "size"),
      drawn: [barEditor(bars, (changed) => this.#set({ bars: changed }))],
      log: [
        make(
          "div",
          { class: "pg-field" },
          make("label", { for: "pg-log" }, "an access log, which stays on this computer"),
          file,
        ),
        make("p", { class: "pg-note", role: "status" }, this.#note),
        ...(logSeconds > seconds
          ? [
              slider(
                {
                  label: "begins at this second of the log",
                  min: 0,
                  max: logSeconds - 1,
                  step: 1,
                },
                logFrom,
                (value) => this.#set({ logFrom: value }),
              ),
            ]
          : []),
      ],
    };
    this.#controls.replaceChildren(
      group(
        "Limiter",
        choice("algorithm", NAMES, algorithm, (name) =>
          this.#chooseAlgorithm(name as AlgorithmName),
        ),
        ...limiterFields,
      ),
      group(
        "Callers",
        choice("a caller", VERBS, verb, (name) =>
          this.#change({ ...this.#settings, verb: name as Verb }),
        ),
        ...commons("permits", ...(verb === "timeout" ? ["timeoutMs"] : [])),
        ...(isShared(settings)
          ? [
              choice("tenants wait in", QUEUES, queue, (name) =>
                this.#change({ ...this.#settings, queue: name as Queue }),
              ),
            ]
          : []),
        ...(isFair(settings) && hasWeight(settings) ? commons("weight") : []),
      ),
      group(
        "Traffic",
        choice("requests", TRAFFIC_KINDS, traffic, (name) =>
          this.#change({ ...this.#settings, traffic: name as TrafficKind }),
        ),
        ...trafficFields[traffic],
        ...commons("seconds"),
      ),
      group(
        "Beside it",
        choice(
          "what else gets the same traffic",
          { none: "nothing", ...otherQueue, ...NAMES },
          comparisonOf(settings),
          (name) => this.#set({ compare: name as Comparison }),
        ),
      ),
    );
  }

  #chooseAlgorithm(algorithm: AlgorithmName): void {
    const { algorithm: before, numbers } = this.#settings;
    this.#change({
      ...this.#settings,
      algorithm,
      numbers: { ...initialNumbers(algorithm), ...sameOnSliders(before, numbers, algorithm) },
    });
  }

  async #readLog(file: File): Promise<void> {
    const text = await file.slice(0, LONGEST_LOG).text();
    let problem = "";
    try {
      const replayed = readReplayed(text);
      if (replayed !== undefined) return this.#showReplayed(replayed, file.name);
    } catch (error) {
      problem = (error as Error).message;
    }
    const { arrivals, firstMs, seconds, skipped } = readAccessLog(problem === "" ? text : "");
    const found =
      problem ||
      (arrivals.length === 0
        ? "No line of this file has a time that can be read."
        : `${arrivals.length} requests in ${seconds} s, ${skipped} lines without a time.`);
    const rest = file.size > LONGEST_LOG ? ` Only the first ${LONGEST_LOG / 1e6} MB are read.` : "";
    this.#note = `${file.name}: ${found}${rest}`;
    const shown = Math.min(60, Math.max(2, seconds));
    const common = { ...this.#settings.common, seconds: shown };
    const log = { log: arrivals, logFirstMs: firstMs, logFrom: 0 };
    this.#change({ ...this.#settings, ...log, traffic: "log", common });
  }

  /** Shows the report of a replay, until something else is chosen. */
  #showReplayed(replayed: Replayed, file: string): void {
    this.#live?.abort();
    this.#leaveLive();
    this.#replayed = replayed;
    this.#note = `${file}: the report of a replay, until you choose something else.`;
    this.#showControls();
    this.#summary.textContent = `${replayed.log} by ${replayed.rulesFrom}: ${sumsOf(replayed.report)}`;
    this.#draw();
  }

  /** Shows what is chosen now: its code, its URL and what happens. */
  #update(): void {
    this.#live?.abort();
    this.#leaveLive();
    this.#replayed = undefined;
    clearTimeout(this.#urlTimer);
    this.#urlTimer = setTimeout(() => {
      history.replaceState(history.state, "", `?${toQuery(this.#settings)}`);
    }, URL_PAUSE_MS);
    this.#showCode();
    this.#isStale = true;
    this.#results.setAttribute("aria-busy", "true");
    void this.#catchUp();
  }

  /** Simulates until the result is that of the latest choice. One simulation at a time: a slider changes faster. */
  async #catchUp(): Promise<void> {
    if (this.#isSimulating) return;
    this.#isSimulating = true;
    try {
      while (this.#isStale && !this.#ending.signal.aborted) {
        this.#isStale = false;
        const [series, other] = await this.#simulate(this.#settings);
        // a live run has begun meanwhile
        if (this.#live !== undefined) continue;
        this.#other = other;
        this.#atMs = series.seconds * 1000;
        this.#showAll(series);
      }
    } finally {
      this.#isSimulating = false;
      this.#results.setAttribute("aria-busy", "false");
    }
  }

  /** Shows a run that is over. */
  #showAll(series: Series): void {
    this.#series = series;
    this.#scrubber.max = String(series.seconds * 1000);
    this.#scrubber.value = String(this.#atMs);
    this.#draw();
    this.#table.replaceChildren(...callTable(series));
  }

  async #simulate(settings: Settings): Promise<[Series, Series | undefined]> {
    const { algorithm, numbers } = settings;
    const compare = comparisonOf(settings);
    const series = await simulate(settings);
    if (compare === "none") return [series, undefined];
    const setup = setupOf(settings);
    const other =
      compare === "queue"
        ? { fair: !setup.fair }
        : { algorithm: compare, numbers: sameNumbers(algorithm, numbers, compare) };
    return [series, await simulate(settings, { ...setup, ...other })];
  }

  #draw(): void {
    const series = this.#series;
    const width = this.#width;
    const replayed = this.#replayed;
    this.#results.classList.toggle("pg-replayed", replayed !== undefined);
    if (replayed !== undefined) {
      this.#charts.innerHTML = replayed.report.rules
        .map((rule) => {
          const title = escaped(`${rule.name}: ${sumsOf(rule)}`);
          const chart = drawRule(rule, replayed.zoneMinutes, width);
          return `<figure><figcaption>${title}</figcaption>${chart}</figure>`;
        })
        .join("");
      return;
    }
    if (series === undefined) return;
    const { algorithm, calls, seconds } = series;
    const tenants = tenantsOf(calls);
    const other = this.#other;
    const isQueue = comparisonOf(this.#settings) === "queue";
    const otherName =
      other === undefined || isQueue
        ? otherQueueOf(this.#settings)
        : toPolicy(other.algorithm, other.numbers);
    const otherLabel = `What ${otherName} would have done (violet in the sums)`;
    const dashed = other === undefined ? "" : ` (dashed: ${otherName})`;
    const charts = [
      [
        "Requests",
        drawCalls(calls, seconds, width, "When requests arrived, were granted and were refused"),
      ],
      ...(other === undefined
        ? []
        : [[otherLabel, drawCalls(other.calls, seconds, width, otherLabel)]]),
      ...(tenants.length > 1
        ? [[`Permits granted to each tenant${dashed}`, drawShares(series, other, width)]]
        : []),
      [
        "Sums: arrived (grey), granted (blue), the most that is promised (dashed)",
        drawSums(series, other, width),
      ],
      [`State: ${algorithmOf(algorithm).state}`, drawState(series, width)],
      ...(this.#settings.verb === "try" ? [] : [["Waiting", drawWaiting(series, width)]]),
      ...(algorithm === "smoothWarmingUp"
        ? [["The slope of the warm-up: ms that a permit costs", `<div class="pg-slope"></div>`]]
        : []),
    ];
    this.#charts.innerHTML = charts
      .map(([title, chart]) => `<figure><figcaption>${title}</figcaption>${chart}</figure>`)
      .join("");
    this.#charts.prepend(legend(calls));
    this.#showMoment();
  }

  get #width(): number {
    // on a phone the charts have no box of their own
    return Math.max(280, Math.floor(this.#charts.clientWidth || this.#columns.clientWidth));
  }

  #scrub(atMs: number): void {
    this.#atMs = atMs;
    this.#showMoment();
  }

  /** Moves the cursor, and says in words what happened until then. */
  #showMoment(): void {
    const series = this.#series;
    if (series === undefined || this.#replayed !== undefined) return;
    const width = this.#width;
    const atMs = Math.min(this.#atMs, series.seconds * 1000);
    const x = xOf(width, series.seconds, atMs);
    for (const cursor of this.#charts.querySelectorAll(".pg-cursor")) {
      cursor.setAttribute("transform", `translate(${x + 9} 0)`);
    }
    const slope = this.#charts.querySelector(".pg-slope");
    if (slope !== null) slope.innerHTML = drawSlope(series, atMs, Math.min(width, 420));
    // a screen reader reads it when the time stands still, not for each frame
    const isMoving = this.#play.textContent === "Pause" || this.#live !== undefined;
    this.#summary.setAttribute("aria-live", isMoving ? "off" : "polite");
    this.#summary.textContent = inWords(series, atMs);
  }

  #showCode(): void {
    this.#code.replaceChildren(
      codeBlock("TypeScript", toTypeScript(this.#settings)),
      codeBlock("YAML rule", toYaml(this.#settings)),
    );
  }

  #togglePlay(): void {
    const end = (this.#series?.seconds ?? 0) * 1000;
    if (this.#play.textContent === "Pause") {
      this.#play.textContent = "Play";
      this.#showMoment();
      return;
    }
    this.#play.textContent = "Pause";
    if (this.#atMs >= end) this.#atMs = 0;
    let before = performance.now();
    const frame = (now: number) => {
      if (this.#play.textContent !== "Pause" || this.#ending.signal.aborted) return;
      this.#atMs = Math.min(end, this.#atMs + now - before);
      before = now;
      this.#scrubber.value = String(this.#atMs);
      if (this.#atMs < end) requestAnimationFrame(frame);
      else this.#play.textContent = "Play";
      this.#showMoment();
    };
    requestAnimationFrame(frame);
  }

  #toggleLive(): void {
    if (this.#live !== undefined) {
      this.#update();
      return;
    }
    this.#play.textContent = "Play";
    this.#live = new AbortController();
    this.#liveButton.textContent = "Stop";
    this.#send.hidden = false;
    this.#play.disabled = true;
    this.#scrubber.disabled = true;
    this.#table.hidden = true;
    this.#other = undefined;
    let isDrawing = false;
    this.#sendOne = live(
      this.#settings,
      (series) => {
        this.#series = series;
        this.#atMs = series.samples.at(-1)?.atMs ?? 0;
        if (isDrawing) return;
        isDrawing = true;
        requestAnimationFrame(() => {
          isDrawing = false;
          if (this.#live !== undefined) this.#draw();
        });
      },
      () => {
        this.#leaveLive();
        if (this.#series !== undefined) this.#showAll(this.#series);
      },
      this.#live.signal,
    );
  }

  #leaveLive(): void {
    this.#live = undefined;
    this.#liveButton.textContent = "Run live";
    this.#send.hidden = true;
    this.#play.disabled = false;
    this.#scrubber.disabled = false;
    this.#table.hidden = false;
    this.#play.textContent = "Play";
  }
}

function otherQueueOf(settings: Settings): string {
  return isFair(settings)
    ? "the same limiter with one queue"
    : "the same limiter with a fair queue";
}
