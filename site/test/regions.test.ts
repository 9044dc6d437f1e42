import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import {
  EVENTS,
  FIELDS,
  fromQuery,
  inWords,
  type RegionsRun,
  simulate,
  toQuery,
  toTypeScript,
} from "../model/regions.ts";

const regions = suite("the playground of regions");

/** Whether the fractions, by region, are about these, %. */
function isNear(fractions: readonly number[] | undefined, wanted: readonly number[]): void {
  const percents = fractions?.map((fraction) => Math.round(100 * fraction)) ?? [];
  const isEach = wanted.every((percent, i) => Math.abs((percents[i] ?? 0) - percent) <= 5);
  assert.ok(isEach, `${percents}, not ${wanted}`);
}

/** No interval has more grants than the limit's own bound. */
function keepsBound({ granted, bound, fractions }: RegionsRun): void {
  for (const [from, before] of granted.entries()) {
    for (const [i, sum] of granted.slice(from).entries()) {
      assert.ok(sum - before <= (bound[i] ?? 0) + 1e-6, `${sum - before} of ${bound[i]}`);
    }
  }
  for (const each of fractions) assert.ok(each.reduce((sum, part) => sum + part) <= 1 + 1e-9);
}

regions("the URL holds what is chosen, and what it does not allow is left out", () => {
  const query = "event=away&limit=300&eu=100&us=0&asia=500&reserve=50&everyMs=500";
  assert.is(toQuery(fromQuery(query)), query);
  assert.equal(fromQuery("event=x&limit=1e9&eu=abc"), {
    ...fromQuery(""),
    numbers: { ...fromQuery("").numbers, limit: 500 },
  });
});

regions("parts follow the demand, and the sentences say so", async () => {
  const settings = fromQuery("");
  const run = await simulate(settings);
  const [first, second, third] = run.parts;
  isNear(first?.fractions, [60, 30, 10]);
  isNear(second?.fractions, [10, 30, 60]);
  isNear(third?.fractions, [60, 30, 10]);
  keepsBound(run);
  assert.ok(run.sum >= 0.94 * 200 * 30, `${run.sum}`);
  const words = inWords(settings, run);
  assert.match(words, `All of them are granted ${run.sum} in 30 s, of at most 6200`);
  assert.match(
    words,
    "From 10 s on the demand of eu and asia is exchanged; eu asks for 20 a second",
  );
});

regions(
  "without the home reserves are left, and a home that forgets takes nothing away",
  async () => {
    const away = await simulate(fromQuery("event=away"));
    isNear(away.parts[1]?.fractions, [3, 3, 3]);
    isNear(away.parts[2]?.fractions, [60, 30, 10]);
    keepsBound(away);
    const forgets = await simulate(fromQuery("event=forgets"));
    isNear(forgets.parts[1]?.fractions, [60, 30, 10]);
    keepsBound(forgets);
  },
);

regions("every choice runs", async () => {
  assert.match(toTypeScript(fromQuery("reserve=50")), "reserve: 0.5,");
  for (const event of Object.keys(EVENTS)) {
    for (const end of ["min", "max"] as const) {
      const query = new URLSearchParams({ event });
      for (const field of FIELDS) query.set(field.name, String(field[end]));
      const settings = fromQuery(query.toString());
      const run = await simulate(settings);
      keepsBound(run);
      assert.not.match(inWords(settings, run), /NaN|undefined|Infinity/);
    }
  }
});

regions.run();
