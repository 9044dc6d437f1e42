/** A region with a store of its own. */
import { type Policies, tokenBucket } from "smooth-limiter";
import { RegionalLimiter, type RegionalOptions } from "smooth-limiter/regions";
import { FakeClock, memoryStore } from "smooth-limiter/testing";

/** Its reserve has 10 a second. */
export const bucket: Policies = tokenBucket({ capacity: 300, refill: 300, everyMs: 1000 });

/** Its home is 10 s old. */
export async function withLocal(options: Partial<RegionalOptions> = {}, policy = bucket) {
  const clock = new FakeClock();
  const [home, local] = [memoryStore({ clock }), memoryStore({ clock })];
  const all = { home, local, clock, region: "eu", regions: ["eu", "us", "asia"], ...options };
  const limiter = RegionalLimiter.create("limit", policy, all);
  await limiter.peek();
  await clock.advance(10_000);
  return { clock, home, local, limiter, all };
}

export type Regional = Awaited<ReturnType<typeof withLocal>>["limiter"];

/** Asks for 400 a second. */
export async function busy(limiter: Regional, clock: FakeClock, ms: number): Promise<void> {
  for (let t = 0; t < ms; t += 50) {
    for (let i = 0; i < 20; i++) await limiter.tryAcquire();
    await clock.advance(50);
  }
}

export async function drain(limiter: Regional): Promise<void> {
  while (await limiter.tryAcquire());
}

/** The value of a call, or the name of its error. */
export function nameOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    (value) => `${value}`,
    (error: Error) => error.name,
  );
}
