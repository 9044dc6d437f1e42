import * as assert from "uvu/assert";
import {
  bestFixed,
  CHANGE_MS,
  type JudgedScene,
  learned,
  RECOVERED_MS,
  resultOf,
  SCENES,
  unloaded,
} from "../support/concurrency/scenes.ts";
import { isTried, runs, suite } from "../support/suite.ts";

const test = suite("adaptive concurrency, scenes in virtual time");

const SEEDS = Array.from({ length: runs(3, 1) }, (_, i) => i + 1);

for (const [i, [name, scene]] of Object.entries(SCENES).entries()) {
  if (!isTried(i)) continue;
  test(`${name}: near the best fixed limit, and each client gets an equal share`, () => {
    for (const seed of SEEDS) {
      const got = resultOf(scene, learned(), seed);
      const best = bestFixed(scene, seed);
      const alone = unloaded(scene, seed);
      const facts = JSON.stringify({ seed, rate: got.rate, p99Ms: got.p99Ms, best, alone }, [
        ...["seed", "rate", "p99Ms", "best", "alone", "limit"],
      ]);
      assert.ok(got.rate >= 0.95 * best.rate, facts);
      if (best.p99Ms <= 2 * alone.p99Ms) assert.ok(got.p99Ms <= 2 * alone.p99Ms, facts);
      if (scene.judgedFromMs === RECOVERED_MS && scene.clients.length === 1) {
        assert.ok(got.recoveryS(best, alone) <= (RECOVERED_MS - CHANGE_MS) / 1000, facts);
      }
      const equal = 1 / scene.clients.length;
      for (const share of got.shares) assert.ok(Math.abs(share - equal) <= 0.05, facts);
    }
  });
}

test("while the client is idle the limit stays", () => {
  const { run } = resultOf(SCENES["idle for 20 s, then busy again"] as never, learned(), 1);
  const [before, after] = [21_000, 39_900].map((atMs) => run.limits[atMs / 100]);
  assert.equal(before, after);
});

test("after an eightfold drop the limit is near the new number of workers", () => {
  const workers = (atMs: number) => (atMs < 12_000 ? 24 : 3);
  const scene = { ...SCENES["exponential latencies"], workers, durationMs: 33_000 } as JudgedScene;
  for (let seed = 1; seed <= runs(8, 2); seed++) {
    const { run } = resultOf(scene, learned(), seed);
    const limit = Number(run.limits[320]);
    assert.ok(limit <= 9, `seed ${seed}: ${limit} for 3 workers, 20 s later`);
  }
});

test("one worker: the limit rests at 2", () => {
  for (const seed of SEEDS) {
    const scene = { ...SCENES["warm start"], workers: () => 1 } as JudgedScene;
    const { run } = resultOf(scene, learned(), seed);
    const limits = run.limits.slice(300).map(Number);
    const mean = limits.reduce((sum, limit) => sum + limit, 0) / limits.length;
    assert.ok(mean < 2.5 && Math.max(...limits) <= 4, `seed ${seed}: ${limits.join(" ")}`);
  }
});

test("without a limit most calls are given up, so the scenes are hard enough", () => {
  const none = resultOf(SCENES["warm start"] as never, 500, 1);
  assert.ok(none.rate < 100, `${none.rate} in a second`);
});

test.run();
