import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import { fromQuery } from "../model/settings.ts";
import { simulate } from "../model/simulate.ts";
import { whyInWords } from "../model/why.ts";

const test = suite("why so many passed at once");

const why = async (query: string) => whyInWords(await simulate(fromQuery(query)));

test("each algorithm has its reason", async () => {
  const rows: [query: string, words: string][] = [
    [
      "algorithm=smoothBursty&verb=try",
      "11 passed at once: 10 permits were stored, and one call goes in advance. The next one was refused.",
    ],
    [
      "algorithm=smoothBursty&verb=wait&burstSeconds=0",
      "1 passed at once: nothing was stored, and one call goes in advance: the next one pays for it. The next one waited 95 ms.",
    ],
    [
      "algorithm=smoothBursty&verb=try&permits=3",
      "4 passed at once: 10 permits were stored, enough for 3, and one call goes in advance. The next one was refused.",
    ],
    [
      "algorithm=smoothWarmingUp&verb=try",
      "1 passed at once: idle time is not stored, it makes the limiter cold; one call goes in advance. The next one was refused.",
    ],
    [
      "algorithm=slidingLog&verb=wait",
      "10 passed at once: the limit is 10 in 1 s. The next one waited 950 ms.",
    ],
    [
      "algorithm=gcra&verb=try",
      "10 passed at once: 10 permits were in the bucket. The next one was refused.",
    ],
    [
      "algorithm=leakyBucket&nodelay=2&verb=wait",
      "3 passed at once: one leaves the bucket at once, and nodelay lets 2 more go. The next one waited 85 ms.",
    ],
    [
      "algorithm=gcra&rate=100&verb=try",
      "19 passed at once: 10 permits were in the bucket; 9 more came due in the 90 ms that they took to arrive. The next one was refused.",
    ],
  ];
  for (const [query, words] of rows) assert.is(await why(query), words, query);
});

test("calls that never come together need no reason", async () => {
  assert.is(await why("algorithm=gcra&traffic=steady&rps=5"), "");
});

test.run();
