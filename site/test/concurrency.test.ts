import * as assert from "uvu/assert";
import { isTried, suite } from "../../test/support/suite.ts";
import {
  FIELDS,
  fromQuery,
  inWords,
  LIMITS,
  SERVERS,
  simulate,
  toQuery,
  toTypeScript,
} from "../model/concurrency.ts";

const concurrency = suite("the playground of concurrency limits");

concurrency("the URL holds what is chosen, and what it does not allow is left out", () => {
  for (const query of [
    "limit=gradient&server=queues&workers=20&between=10&serviceMs=50",
    "limit=aimd&server=refuses&workers=7&between=40&serviceMs=200",
    "limit=fixed&server=queues&workers=1&between=1&serviceMs=20&fixed=3",
  ]) {
    assert.is(toQuery(fromQuery(query)), query);
  }
  assert.equal(fromQuery("limit=x&server=y&workers=1e9&between=abc"), {
    ...fromQuery(""),
    numbers: { ...fromQuery("").numbers, workers: 40 },
  });
});

concurrency("a learned limit follows the workers, and the sentence says why", () => {
  const settings = fromQuery("");
  const run = simulate(settings);
  const [first, second, third] = run.parts.map((part) => Math.round(part.limit));
  for (const [limit, workers] of [
    [first, 20],
    [second, 10],
    [third, 20],
  ] as const) {
    assert.ok(Number(limit) >= workers && Number(limit) <= workers + 7, `${limit} for ${workers}`);
  }
  const words = inWords(settings, run);
  assert.match(words, /^The limit follows latency/);
  assert.match(
    words,
    `From 10 s on the server has 10 workers: the limit goes from ${first} to ${second}`,
  );
  assert.match(words, /About \d calls queue, so no worker is idle\./);
});

concurrency("a number that is too low leaves workers idle, and none makes calls slow", () => {
  const low = fromQuery("limit=fixed&fixed=5");
  assert.match(inWords(low, simulate(low)), "15 of its workers have nothing to do.");
  const none = simulate(fromQuery("limit=none"));
  const learned = simulate(fromQuery("limit=gradient"));
  for (const [i, part] of learned.parts.entries()) {
    assert.ok(part.latencyMs * 2 < Number(none.parts[i]?.latencyMs), `part ${i}`);
    assert.ok(part.answered >= 0.9 * part.capacity, `part ${i}: ${part.answered}`);
  }
});

concurrency("refusals are counted, and aimd keeps them rare", () => {
  const [none, aimd] = ["none", "aimd"].map((limit) => {
    return simulate(fromQuery(`limit=${limit}&server=refuses`)).parts[1];
  });
  assert.ok(Number(aimd?.failed) * 5 < Number(none?.failed), `${aimd?.failed} ${none?.failed}`);
});

concurrency("every choice runs, and its code names it", () => {
  const names = {
    gradient: "adaptive({ max: 100 })",
    aimd: "aimd()",
    fixed: "create(20)",
    none: "fetch",
  };
  for (const [l, limit] of (Object.keys(LIMITS) as (keyof typeof LIMITS)[]).entries()) {
    assert.ok(toTypeScript(fromQuery(`limit=${limit}`)).includes(names[limit]), limit);
    for (const [s, server] of Object.keys(SERVERS).entries()) {
      for (const [e, end] of (["min", "max"] as const).entries()) {
        if (!isTried(l, s, e)) continue;
        const query = new URLSearchParams({ limit, server });
        for (const field of FIELDS) query.set(field.name, String(field[end]));
        const settings = fromQuery(query.toString());
        const run = simulate(settings);
        assert.is(run.limits.length, run.latenciesMs.length);
        assert.not.match(inWords(settings, run), /NaN|undefined|Infinity/);
      }
    }
  }
});

concurrency.run();
