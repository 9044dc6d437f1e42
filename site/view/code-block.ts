import { button, make } from "./dom.ts";

/** Copies a text, and says on the button that it has. */
export async function copied(
  pressed: HTMLButtonElement,
  text: string,
  otherwise = "Select it and copy",
): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = "Copied";
  } catch {
    // no permission, or a page that is not served over HTTPS
    pressed.textContent = otherwise;
  }
}

/** Code with a button that copies it. */
export function codeBlock(title: string, text: string): HTMLElement {
  const copy = button(`Copy ${title}`, () => copied(copy, text));
  const code = make("pre", { tabindex: 0, "aria-label": title }, make("code", {}, text));
  return make("div", {}, make("div", { class: "pg-head" }, make("h2", {}, title), copy), code);
}
