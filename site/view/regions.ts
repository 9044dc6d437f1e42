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
import { choice, make, slider } from "./dom.ts";
import { pageOf } from "./scene-page.ts";

export const mount = pageOf<RegionsSettings, RegionsRun>({
  title: "Playground: one limit over three regions",
  intro:
    "Three regions share a limit through a RegionalLimiter: each decides by itself, and their parts follow the demand. The library itself runs in this page, in virtual time.",
  legend: [
    make(
      "p",
      { class: "pg-legend" },
      ...REGIONS.map((region, i) => make("span", { class: `pg-tenant-${i}` }, `\u25a0 ${region}`)),
    ),
  ],
  // a run takes long enough to be felt
  pauseMs: 250,
  ...{ fromQuery, toQuery, toTypeScript, simulate, inWords },
  pictures: ({ fractions, asked, granted, bound }, _, width) => {
    const parts = REGIONS.map((_, i) => ({
      name: `pg-share pg-tenant-${i}`,
      values: fractions.map((each) => 100 * (each[i] ?? 0)),
    }));
    return [
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
  },
  controls: ({ event, numbers }, set) => {
    const chosen = { ...numbers };
    const sliders = FIELDS.map(({ name, initial, ...range }) =>
      slider(range, numbers[name] ?? initial, (value) => {
        chosen[name] = value;
        set({ numbers: { ...chosen } });
      }),
    );
    const events = choice("from 10 s to 20 s", EVENTS, event, (kind) =>
      set({ event: kind as EventKind }),
    );
    return [
      make("fieldset", {}, make("legend", {}, "What happens"), events),
      make("fieldset", {}, make("legend", {}, "Numbers"), ...sliders),
    ];
  },
});
