// A figure of the docs: what the library does, drawn as it goes on, with something to choose.

import { escaped } from "../../cli/src/report/chart.ts";
import { FIGURES, firstChoice, isSlider, type Lane } from "../model/figures.ts";
import { drawCalls, xOf } from "./chart.ts";
import { button, choice, make, slider } from "./dom.ts";
import { legend } from "./legend.ts";

/** The longest time that it moves by itself, ms. */
const MOVING_MS = 4500;

/** Fills the place with the figure of that name. */
export function mount(place: HTMLElement, name: string): () => void {
  const figure = FIGURES[name];
  if (figure === undefined) throw new Error(`no figure "${name}"`);
  const { title, seconds, question, choices } = figure;
  const ending = new AbortController();
  const charts = make("div", { class: "pg-charts" });
  const words = make("p", { class: "pg-summary", role: "status" });
  const play = button("Play", () => move());
  const more = make("a", {}, "Open it in the playground");
  const { playground } = figure;
  let chosen = "";
  let lanes: readonly Lane[] = [];
  let run = 0;

  const width = () => Math.max(260, Math.floor(charts.clientWidth));
  const draw = () => {
    charts.innerHTML = lanes
      .map(({ label, calls, marked }) => {
        const [from, until] = marked?.map((ms) => xOf(width(), seconds, ms)) ?? [0, 0];
        const svg = drawCalls(calls, seconds, width(), `${title}: ${label}`).replace(
          ">",
          `><rect class="pg-marked" x="${from}" y="0" width="${Number(until) - Number(from)}" height="94"/>`,
        );
        return `<figcaption>${escaped(label)}</figcaption>${svg}`;
      })
      .join("");
    charts.prepend(legend(lanes[0]?.calls ?? []));
  };
  /** Shows what happened until then: the rest is covered. */
  const show = (atMs: number) => {
    const x = xOf(width(), seconds, atMs);
    for (const cursor of charts.querySelectorAll(".pg-cursor")) {
      cursor.setAttribute("transform", `translate(${x + 9} 0)`);
    }
    for (const svg of charts.querySelectorAll<SVGElement>("svg")) {
      svg.style.clipPath = `inset(0 ${Math.max(0, width() - x - 2)}px 0 0)`;
    }
  };
  const move = () => {
    const mine = ++run;
    const began = performance.now();
    const frame = (now: number) => {
      if (mine !== run || ending.signal.aborted) return;
      const part = Math.min(1, Math.max(0, now - began) / MOVING_MS);
      show(part * seconds * 1000);
      if (part < 1) requestAnimationFrame(frame);
      else for (const svg of charts.querySelectorAll<SVGElement>("svg")) svg.style.clipPath = "";
    };
    requestAnimationFrame(frame);
  };
  const choose = (next: string) => {
    chosen = next;
    const query = playground?.(next);
    if (query !== undefined) more.href = `${import.meta.env.BASE_URL}playground.html?${query}`;
  };
  const update = async (isMoving: boolean) => {
    run += 1;
    const wanted = chosen;
    const made = await figure.lanes(wanted);
    if (wanted !== chosen || ending.signal.aborted) return;
    lanes = made;
    words.textContent = lanes.map((lane) => `${lane.label}: ${lane.words}.`).join(" ");
    draw();
    if (isMoving && !matchMedia("(prefers-reduced-motion: reduce)").matches) move();
  };

  const control = (choose: (next: string) => void) =>
    isSlider(choices)
      ? slider({ label: question, ...choices }, choices.initial, (value) => choose(String(value)))
      : choice(question, choices, chosen, choose);

  choose(firstChoice(figure));
  place.replaceChildren(
    make(
      "figure",
      { class: "pg pg-figure", "data-figure": name },
      make("p", { class: "pg-title" }, title),
      make(
        "div",
        { class: "pg-time" },
        control((next) => {
          choose(next);
          void update(true);
        }),
        play,
        ...(playground === undefined ? [] : [more]),
      ),
      charts,
      words,
    ),
  );
  const resized = new ResizeObserver(() => draw());
  resized.observe(charts);
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
    seen.disconnect();
    void update(true);
  });
  seen.observe(place);
  ending.signal.addEventListener("abort", () => {
    resized.disconnect();
    seen.disconnect();
  });
  return () => ending.abort();
}
