// Every call in a table: the charts in numbers, for screen readers and for tests.

import type { Series } from "../model/simulate.ts";
import { make } from "./dom.ts";

const HEADS = ["caller", "arrived, ms", "granted, ms", "refused, ms"];

export function callTable({ calls }: Series): HTMLElement[] {
  const rows = calls.map(({ tenant, atMs, startedMs, refusedMs }) =>
    make(
      "tr",
      {},
      ...[tenant, atMs, startedMs, refusedMs].map((cell) => make("td", {}, String(cell ?? ""))),
    ),
  );
  const heads = HEADS.map((head) => make("th", { scope: "col" }, head));
  const table = make(
    "table",
    {},
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...rows),
  );
  return [
    make("summary", {}, `Every request in numbers (${calls.length})`),
    make(
      "div",
      { class: "pg-scroll", tabindex: 0, role: "region", "aria-label": "Every request" },
      table,
    ),
  ];
}
