/**
 * A server shares its network line with others: all its downloads together may take 8 MiB a second. A
 * file is served over HTTP and fetched with curl, which measures the speed: by one client, then by two
 * at once, then by one whose first megabyte is not limited.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { devNull, tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { RateLimiter } from "smooth-limiter";
import { throttleNode } from "smooth-limiter/streams/node";

const MIB = 2 ** 20;
const SIZE = 6 * MIB;
const RATE = 8 * MIB;

const folder = await mkdtemp(join(tmpdir(), "downloads-"));
const path = join(folder, "film");
await writeFile(path, randomBytes(SIZE));

const line = RateLimiter.create(RATE, { burstSeconds: 0 });
const server = createServer((request, response) => {
  const freeBytes = request.url === "/trailer-first" ? MIB : 0;
  const body = request.url === "/unlimited" ? [] : [throttleNode(line, { freeBytes })];
  response.setHeader("content-length", SIZE);
  // a client that disconnects ends the pipeline, and its reserved bytes go to the other downloads
  pipeline([createReadStream(path), ...body, response]).catch(() => {});
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

/** Returns the speed that curl measures, MiB a second. */
async function curl(page: string): Promise<number> {
  const options = [
    "--silent",
    "--fail",
    "--noproxy",
    "*",
    "-o",
    devNull,
    "-w",
    "%{speed_download}",
  ];
  const { stdout } = await promisify(execFile)("curl", [...options, `${url}${page}`]);
  return Number(stdout) / MIB;
}

function show(what: string, ...speeds: number[]): void {
  for (const speed of speeds) {
    console.log(`  ${what.padEnd(26)} ${speed.toFixed(2).padStart(8)} MiB/s`);
  }
}

console.log(`curl fetches ${SIZE / MIB} MiB from a line of ${RATE / MIB} MiB a second:\n`);

const unlimited = await curl("/unlimited");
show("without a limiter", unlimited);

const alone = await curl("/");
show("alone", alone);
assert.ok(alone < 8.2, "a download is not faster than the limit");
assert.ok(alone > 5, "a download is not much slower than the limit");

const both = await Promise.all([curl("/"), curl("/")]);
show("one of two at once", ...both);
// a download has the whole limit for itself before the other begins and after it has ended
for (const speed of both) assert.ok(speed > 2 && speed < 6, "two downloads share the limit");

const free = await curl("/trailer-first");
show("first MiB not limited", free);
assert.ok(free > alone, "the download is faster when its first megabyte is not limited");

server.close();
await rm(folder, { recursive: true });
