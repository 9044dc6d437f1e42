// The playground of concurrency limits: the limit and the latency over time while the server loses and gains workers.

import {
  type ConcurrencyRun,
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
import { choice, make, slider } from "./dom.ts";
import { pageOf } from "./scene-page.ts";

export const mount = pageOf<ConcurrencySettings, ConcurrencyRun>({
  title: "Playground: a concurrency limit that finds itself",
  intro:
    "A hundred callers call a server that loses and gains workers, through a ConcurrencyLimiter. The library itself runs in this page, in virtual time.",
  legend: [],
  pauseMs: 0,
  ...{ fromQuery, toQuery, toTypeScript, simulate, inWords },
  pictures: ({ workers, limits, latenciesMs }, { numbers }, width) => [
    [
      "The limit (blue) and the server's workers (dashed)",
      drawLines("The limit and the number of workers over time", SECONDS, width, [
        { name: "pg-bound", values: workers },
        { name: "pg-sum", values: limits },
      ]),
    ],
    [
      "How long a call takes, ms (blue), and without a queue (dashed)",
      drawLines("Latency over time, ms", SECONDS, width, [
        { name: "pg-bound", values: latenciesMs.map(() => numbers.serviceMs ?? 0) },
        { name: "pg-sum", values: latenciesMs },
      ]),
    ],
  ],
  controls: ({ limit, server, numbers }, set) => {
    const chosen = { ...numbers };
    const sliderOf = (wanted: string) =>
      FIELDS.filter(({ name }) => name === wanted).map(({ name, initial, ...range }) =>
        slider(range, numbers[name] ?? initial, (value) => {
          chosen[name] = value;
          set({ numbers: { ...chosen } });
        }),
      );
    const fixed = make("div", {}, ...sliderOf("fixed"));
    fixed.hidden = limit !== "fixed";
    const limits = choice("the limit is", LIMITS, limit, (kind) => {
      fixed.hidden = kind !== "fixed";
      set({ limit: kind as LimitKind });
    });
    const servers = choice("a busy server", SERVERS, server, (kind) =>
      set({ server: kind as ServerKind }),
    );
    return [
      make("fieldset", {}, make("legend", {}, "Limit"), limits, fixed),
      make(
        "fieldset",
        {},
        make("legend", {}, "Server"),
        servers,
        ...["workers", "between", "serviceMs"].flatMap(sliderOf),
      ),
    ];
  },
});
