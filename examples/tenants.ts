/**
 * Three tenants share an API of 40 calls a second. The first one queues 200 calls at once; the others
 * call a little all the time. First in, first out they wait behind the first one; on a fair limiter
 * they do not notice it.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import colors from "picocolors";
import { fairShares, RateLimiter } from "smooth-limiter";

const RATE = 40;
const ROW_MS = 250;
const SECONDS = 4;

const looks: Readonly<Record<string, (text: string) => string>> = {
  batch: colors.red,
  ann: colors.green,
  bob: colors.cyan,
};

async function run(fair: boolean): Promise<Record<string, number>> {
  const limiter = RateLimiter.create(RATE, {
    order: fair ? fairShares() : undefined,
    burstSeconds: 0,
  });
  const marks: string[] = [];
  const waits: Record<string, number> = { batch: 0, ann: 0, bob: 0 };
  const end = new AbortController();

  const call = async (tenant: string) => {
    const { signal } = end;
    const options = fair ? { signal, share: tenant } : { signal };
    try {
      const waitedMs = await limiter.acquire(1, options);
      waits[tenant] = Math.max(waits[tenant] ?? 0, waitedMs);
      marks.push(looks[tenant]?.("■") ?? "");
    } catch {
      // the example is over
    }
  };

  console.log(fair ? "\norder: fairShares()" : "first in, first out");
  for (let i = 0; i < 200; i++) void call("batch");
  for (let row = 0; row < (SECONDS * 1000) / ROW_MS; row++) {
    void call("ann");
    if (row % 2 === 0) void call("bob");
    await sleep(ROW_MS);
    const time = ((row + 1) * ROW_MS) / 1000;
    console.log(`  ${colors.dim(`${time.toFixed(2)} s`)}   ${marks.splice(0).join("")}`);
  }
  end.abort();
  const longest = Object.entries(waits).map(([tenant, ms]) => `${tenant} ${Math.round(ms)} ms`);
  console.log(`  longest wait: ${longest.join(", ")}`);
  return waits;
}

console.log("a mark for each call: red batch, green ann, blue bob\n");
const before = await run(false);
const after = await run(true);
assert.equal(before.ann, 0, "first in, first out: no call of ann went");
assert.ok((after.ann ?? 0) < 1000 && (after.bob ?? 0) < 1000, "fair: they wait for a few calls");
