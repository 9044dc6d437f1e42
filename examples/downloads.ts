/**
 * A server has a line that others need too: all its downloads together may take 8 MiB a second. A file
 * is served over HTTP and fetched with curl, which says itself how fast it was: once alone, then by
 * two at once, then by one whose first megabyte is free. Last, a client slows itself down with fetch.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { devNull, tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import colors from "picocolors";
import { RateLimiter } from "smooth-limiter";
import { throttle } from "smooth-limiter/streams";
import { throttleNode } from "smooth-limiter/streams/node";

const MIB = 2 ** 20;
const SIZE = 6 * MIB;
const RATE = 8 * MIB;

const folder = await mkdtemp(join(tmpdir(), "downloads-"));
const path = join(folder, "film");
const film = randomBytes(SIZE);
await writeFile(path, film);

const line = RateLimiter.create(RATE, { burstSeconds: 0 });
const server = createServer((request, response) => {
  const freeBytes = request.url === "/trailer-first" ? MIB : 0;
  const body = request.url === "/unlimited" ? [] : [throttleNode(line, { freeBytes })];
  response.setHeader("content-length", SIZE);
  // a client who goes away ends the pipeline, and what it has bought goes to the others
  pipeline([createReadStream(path), ...body, response]).catch(() => {});
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

/** MiB a second, as curl measures it. */
async function curl(page: string): Promise<number> {
  const options = ["--silent", "--fail", "--noproxy", "*", "--output", devNull];
  const { stdout } = await promisify(execFile)("curl", [
    ...options,
    "--write-out",
    "%{speed_download}",
    `${url}${page}`,
  ]);
  return Number(stdout) / MIB;
}

function show(what: string, ...speeds: number[]): void {
  for (const speed of speeds) {
    const bar = colors.green("■".repeat(Math.round(4 * Math.min(speed, 12))));
    console.log(`  ${what.padEnd(26)} ${speed.toFixed(2).padStart(8)} MiB/s  ${bar}`);
  }
}

console.log(`curl fetches ${SIZE / MIB} MiB from a line of ${RATE / MIB} MiB a second:\n`);

const unlimited = await curl("/unlimited");
show("without a limiter", unlimited);

const alone = await curl("/");
show("alone", alone);
assert.ok(alone < 8.2, "not faster than the line");
assert.ok(alone > 5, "and not much slower");

const both = await Promise.all([curl("/"), curl("/")]);
show("one of two at once", ...both);
// whichever begins or stays longer has the line to itself meanwhile
for (const speed of both) assert.ok(speed > 2 && speed < 6, "they share it");

const free = await curl("/trailer-first");
show("the first MiB is free", free);
assert.ok(free > alone, "that much sooner is it there");

// the other end: a client that leaves room for others on its own line
const limiter = RateLimiter.create(12 * MIB);
const start = performance.now();
const { body } = await fetch(`${url}/unlimited`);
assert.ok(body !== null);
const hash = createHash("sha256");
for await (const piece of body.pipeThrough(throttle(limiter))) hash.update(piece);
show("fetch, at 12 MiB a second", (1000 * SIZE) / MIB / (performance.now() - start));
assert.equal(hash.digest("hex"), createHash("sha256").update(film).digest("hex"));
console.log("\n  and every byte is where it was");

server.close();
await rm(folder, { recursive: true });
