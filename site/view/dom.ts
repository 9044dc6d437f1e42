// Small helpers for elements.

import type { SliderRange } from "../model/algorithms.ts";

type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** Makes an element. An attribute that is `false` or undefined is left out. */
export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

/** A button that does something when it is pressed. */
export function button(label: string, press: () => unknown): HTMLButtonElement {
  const element = make("button", { type: "button", class: "pg-button" }, label);
  element.addEventListener("click", press);
  return element;
}

let ids = 0;

/** A list to choose from, with its label. */
export function choice(
  label: string,
  options: Readonly<Record<string, string>>,
  chosen: string,
  choose: (name: string) => void,
): HTMLElement {
  const id = `pg-${++ids}`;
  const select = make("select", { id });
  for (const [name, text] of Object.entries(options)) {
    select.append(make("option", { value: name, selected: name === chosen }, text));
  }
  select.addEventListener("change", () => choose(select.value));
  return make("div", { class: "pg-field" }, make("label", { for: id }, label), select);
}

/** A slider with its label and its value. */
export function slider(
  { label, min, max, step }: Omit<SliderRange, "initial">,
  value: number,
  change: (value: number) => void,
): HTMLElement {
  const id = `pg-${++ids}`;
  const output = make("output", { for: id }, String(value));
  const input = make("input", { id, type: "range", min, max, step, value });
  input.addEventListener("input", () => {
    output.textContent = input.value;
    change(input.valueAsNumber);
  });
  return make("div", { class: "pg-field" }, make("label", { for: id }, label), output, input);
}
