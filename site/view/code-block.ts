import { button, make } from "./dom.ts";

/** Code with a button that copies it. */
export function codeBlock(title: string, text: string): HTMLElement {
  const copy = button(`Copy ${title}`, async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      // no permission, or a page that is not served over HTTPS
      copy.textContent = "Select it and copy";
    }
  });
  const code = make("pre", { tabindex: 0, "aria-label": title }, make("code", {}, text));
  return make("div", {}, make("div", { class: "pg-head" }, make("h2", {}, title), copy), code);
}
