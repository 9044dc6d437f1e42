import type { Redis } from "ioredis";
import * as assert from "uvu/assert";
import { turn } from "./watch.ts";

/**
 * Everything stored on Redis except the registrations of processes, which are written in the
 * background.
 */
export async function stateOf(redis: Redis): Promise<Record<string, string>> {
  const keys = (await redis.keys("*")).filter((key) => !key.endsWith("%processes")).sort();
  const values = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
  return Object.fromEntries(keys.map((key, i) => [key, String(values[i]?.toString("hex"))]));
}

/** A request of one of two clients for a device; resolves to whether it passes. */
type Ask = (client: 0 | 1, device: string) => Promise<boolean>;

/** The refused requests of one device stay in flight while `good` requests of others come. */
export async function contest(
  redis: Redis,
  inFlight: number,
  good: number,
  ask: Ask,
): Promise<void> {
  assert.ok(await ask(0, "bad"));
  const before = await stateOf(redis);
  let isOver = false;
  const flood = async () => {
    do assert.not(await ask(0, "bad"));
    while (!isOver);
  };
  const refused = Array.from({ length: inFlight }, flood);
  await turn();
  isOver = true;
  await Promise.all(refused);
  assert.equal(await stateOf(redis), before, "refused requests have changed nothing");
  isOver = false;
  const more = Array.from({ length: inFlight }, flood);
  let passed = 0;
  try {
    for (let i = 0; i < good; i++) if (await ask(1, `good ${i}`)) passed += 1;
  } finally {
    isOver = true;
    await Promise.all(more);
  }
  assert.is(passed, good);
}
