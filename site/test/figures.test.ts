import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import { FIGURES, type Figure, isSlider } from "../model/figures.ts";

const figures = suite("the figures of the docs");

async function startsOf(name: string, choice: string): Promise<(number | undefined)[][]> {
  const lanes = (await FIGURES[name]?.lanes(choice)) ?? [];
  return lanes.map(({ calls }) => calls.map(({ startedMs }) => startedMs));
}

async function wordsOf(name: string, choice: string): Promise<string[]> {
  const lanes = (await FIGURES[name]?.lanes(choice)) ?? [];
  return lanes.map(({ words }) => words);
}

function valuesOf(choices: Figure["choices"]): string[] {
  if (!isSlider(choices)) return Object.keys(choices);
  return [choices.min, choices.initial, choices.max].map(String);
}

figures("burst: the sentence says why so many passed", async () => {
  assert.equal(await wordsOf("burst", "10"), [
    "11 passed at once: 10 permits were stored, and one call goes in advance. The next one waited 45 ms",
  ]);
  assert.equal(await wordsOf("burst", "2"), [
    "3 passed at once: 2 permits were stored, and one call goes in advance. The next one waited 485 ms",
  ]);
});

figures("prepay: a large call starts in its turn, and the next one pays for it", async () => {
  assert.equal(await startsOf("prepay", "large"), [[0, 250, 2250, 2500, 2750]]);
  assert.equal(await startsOf("prepay", "equal"), [[0, 250, 500, 750, 1000]]);
});

figures("keys: a user that sends too much does not take from the others", async () => {
  assert.equal(await wordsOf("keys", "each"), ["granted are ann 9 of 32, bob 4 of 4, cleo 4 of 4"]);
  const [together = ""] = await wordsOf("keys", "all");
  assert.not.match(together, "bob 4 of 4");
});

figures("algorithms: how many of twenty pass at once, and why", async () => {
  const choices = valuesOf(FIGURES.algorithms?.choices ?? {});
  const words = await Promise.all(choices.map((choice) => wordsOf("algorithms", choice)));
  const atOnce = words.flat().map((text) => Number(/^(\d+) passed at once/.exec(text)?.[1]));
  assert.equal(Object.fromEntries(choices.map((choice, i) => [choice, atOnce[i]])), {
    smoothBursty: 11,
    smoothWarmingUp: 1,
    fixedWindow: 10,
    slidingLog: 10,
    slidingWindow: 10,
    tokenBucket: 10,
    gcra: 10,
    leakyBucket: 1,
  });
});

figures("processes: one limit in a store holds for all of them", async () => {
  assert.equal(await wordsOf("processes", "one"), ["5 in the busiest second, all together"]);
  assert.equal(await wordsOf("processes", "each"), ["15 in the busiest second, all together"]);
});

figures("warming up: a longer warm-up makes callers wait longer", async () => {
  assert.equal(await wordsOf("warming-up", "short"), ["the longest wait is 250 ms"]);
  assert.equal(await wordsOf("warming-up", "long"), ["the longest wait is 2500 ms"]);
});

figures("double burst: only the fixed window lets twice the limit through", async () => {
  assert.equal(await wordsOf("double-burst", "try"), [
    "20 within a second",
    "10 within a second",
    "10 within a second",
  ]);
});

figures("cancel: the callers behind the one that leaves move up", async () => {
  assert.equal(await startsOf("cancel", "none"), [[0, 500, 1000, 1500, 2000, 2500]]);
  assert.equal(await startsOf("cancel", "third"), [[0, 500, undefined, 1000, 1500, 2000]]);
  assert.equal(await startsOf("cancel", "fourth"), [[0, 500, 1000, undefined, 1500, 2000]]);
});

figures("Redis away: what each mode lets in meanwhile", async () => {
  const modes = ["throw", "wait", "local", "allow"];
  const words = await Promise.all(modes.map((mode) => wordsOf("redis-away", mode)));
  const [thrown, waited, local = 0, allowed] = words
    .flat()
    .map((text) => Number(/(\d+) are granted/.exec(text)?.[1]));
  assert.equal([thrown, waited, allowed], [0, 0, 30]);
  // each process has a third of the limit: 18 in 3 s, less those that waited already
  assert.ok(local > 6 && local <= 18, `${local}`);
  assert.match(words[0]?.[0] ?? "", "of the 30 requests that come while the store is away");
});

figures("fair: a tenant that sends all at once delays only itself", async () => {
  assert.equal(await wordsOf("fair", "one"), [
    "the longest waits are a 4667 ms, b 4830 ms, c 4356 ms",
  ]);
  assert.equal(await wordsOf("fair", "fair"), [
    "the longest waits are a 400 ms, b 4130 ms, c 9458 ms",
  ]);
});

figures("the playground shows the same where it can", () => {
  for (const [name, { choices, playground }] of Object.entries(FIGURES)) {
    const queries = valuesOf(choices).map((choice) => playground?.(choice));
    assert.is(new Set(queries).size, playground === undefined ? 1 : queries.length, name);
  }
});

figures.run();
