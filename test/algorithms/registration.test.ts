import { existsSync, readdirSync, readFileSync } from "node:fs";
import { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { algorithms } from "../../src/algorithms/index.ts";
import * as library from "../../src/index.ts";
import { luaTwins } from "../../src/stores/redis/lua.gen.ts";
import { begin } from "../support/algorithms/play.ts";
import { pacedSamples, samplesOf } from "../support/algorithms/samples.ts";
import { redisServer } from "../support/programs/redis-server.ts";
import { freshUrl } from "../support/redis/server.ts";
import { suite } from "../support/suite.ts";

const FOLDER = "src/algorithms";

const test = suite("the registration of algorithms");

test("every folder is registered, under the name of its files and its twin", () => {
  const folders = readdirSync(FOLDER, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);
  assert.equal(algorithms.map(({ name }) => name).sort(), folders.sort());
  for (const { name } of algorithms) {
    for (const ending of ["ts", "lua"]) {
      const file = `${name}.${ending}`;
      assert.ok(existsSync(`${FOLDER}/${name}/${file}`), `${name}: ${file} is missing`);
    }
    assert.ok(Object.hasOwn(luaTwins, name), `${name}.lua is embedded: npm run lua`);
  }
});

test("each algorithm has a code of one letter of its own", () => {
  const codes = algorithms.map(({ code }) => code);
  for (const code of codes) assert.match(code, /^[a-z]$/);
  assert.is(new Set(codes).size, codes.length, `codes ${codes.join(", ")}`);
});

test("the twin registers itself under the same code, with the same flags", async () => {
  await redisServer();
  const redis = new Redis(await freshUrl());
  try {
    for (const { name, code, inOrder, receiptIsTime = false } of algorithms) {
      const script = `local algorithms = {}
        do ${readFileSync(`${FOLDER}/${name}/${name}.lua`, "utf8")} end
        local found = {}
        for code, twin in pairs(algorithms) do
          found[#found + 1] = code .. " in_order=" .. tostring(twin.in_order == true)
            .. " receiptIsTime=" .. tostring(twin.receipt_is_time == true)
        end
        return found`;
      const found = await redis.eval(script, 0);
      assert.equal(found, [`${code} in_order=${inOrder} receiptIsTime=${receiptIsTime}`], name);
    }
  } finally {
    redis.disconnect();
  }
});

test("each algorithm has a public function that makes its policies", async () => {
  for (const { name } of algorithms) {
    const files = readdirSync(`${FOLDER}/${name}`).filter((file) => file.endsWith(".ts"));
    const modules = await Promise.all(
      files.map((file) => import(`../../${FOLDER}/${name}/${file}`)),
    );
    const made = modules.flatMap((module) => Object.keys(module));
    const exported = made.filter((each) => Object.hasOwn(library, each));
    assert.ok(exported.length > 0, `src/index.ts exports nothing of ${name}`);
  }
});

test("each algorithm has samples; their states are numbers and lists of numbers", () => {
  for (const { name } of algorithms) {
    const { paced, everyday } = samplesOf(name);
    assert.ok(Object.keys(paced).length > 0 && Object.keys(everyday).length > 0, name);
  }
  for (const [name, { at }] of pacedSamples) {
    const policy = at(7);
    const state = begin(policy);
    for (const permits of [1, 1]) policy.algorithm.take(policy, state, 0, permits);
    for (const value of Object.values(state as object).flat()) {
      assert.ok(Number.isFinite(value), `${name}: ${JSON.stringify(state)}`);
    }
    assert.equal(policy.algorithm.policy(policy.numbers).numbers, policy.numbers, name);
  }
});

test("the error for an algorithm without samples names it, and the file that lacks them", () => {
  assert.throws(() => samplesOf("leaky"), /samples\.ts has no samples of "leaky"/);
});

test.run();
