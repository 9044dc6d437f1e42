// Traffic drawn by hand: bars that are dragged with a pointer, or changed with the arrow keys.

import { BARS, HIGHEST_BAR } from "../model/traffic.ts";
import { make } from "./dom.ts";

/** @param change is given the new bars after each change */
export function barEditor(
  initial: readonly number[],
  change: (bars: readonly number[]) => void,
): HTMLElement {
  const bars = [...initial];
  let chosen = 0;
  const editor = make("div", {
    class: "pg-bars",
    role: "slider",
    tabindex: 0,
    "aria-label":
      "Requests in each part of the time: left and right choose a part, up and down change it",
    "aria-valuemin": 0,
    "aria-valuemax": HIGHEST_BAR,
  });
  editor.append(...bars.map(() => make("div")));
  const show = () => {
    for (const [i, bar] of [...editor.children].entries()) {
      (bar as HTMLElement).style.height = `${((bars[i] ?? 0) / HIGHEST_BAR) * 100}%`;
      bar.classList.toggle("pg-chosen", i === chosen);
    }
    editor.setAttribute("aria-valuenow", String(bars[chosen]));
    editor.setAttribute(
      "aria-valuetext",
      `part ${chosen + 1} of ${BARS}: ${bars[chosen]} requests`,
    );
  };
  const set = (index: number, count: number) => {
    chosen = Math.min(BARS - 1, Math.max(0, index));
    bars[chosen] = Math.min(HIGHEST_BAR, Math.max(0, Math.round(count)));
    show();
    change([...bars]);
  };
  const move = (index: number) => {
    chosen = Math.min(BARS - 1, Math.max(0, index));
    show();
  };
  const keys: Readonly<Record<string, () => void>> = {
    ArrowLeft: () => move(chosen - 1),
    ArrowRight: () => move(chosen + 1),
    Home: () => move(0),
    End: () => move(BARS - 1),
    ArrowUp: () => set(chosen, (bars[chosen] ?? 0) + 1),
    ArrowDown: () => set(chosen, (bars[chosen] ?? 0) - 1),
  };
  editor.addEventListener("keydown", (event) => {
    const deed = keys[event.key];
    if (deed === undefined) return;
    event.preventDefault();
    deed();
  });
  const draw = (event: PointerEvent) => {
    const { left, width, bottom, height } = editor.getBoundingClientRect();
    const index = Math.floor(((event.clientX - left) / width) * BARS);
    set(index, ((bottom - event.clientY) / height) * HIGHEST_BAR);
  };
  editor.addEventListener("pointerdown", (event) => {
    editor.setPointerCapture(event.pointerId);
    draw(event);
  });
  editor.addEventListener("pointermove", (event) => {
    if (event.buttons === 1) draw(event);
  });
  show();
  return editor;
}
