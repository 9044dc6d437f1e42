// Runs the packed core in every runtime that it supports: test/fixtures/runtimes/smoke.js in Node, Deno, Bun,
// workerd and headless Chromium, each in its own process. Then it runs the gateway's examples for Deno, Bun and workerd
// there, and that for Next.js in an application that `next` builds and serves. A runtime that cannot be installed counts
// as failed.

import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { arch, platform } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { build, transform } from "esbuild";
import { addGateway, packIntoFixture } from "../test/support/pack-into-fixture.ts";
import { likelyFreePort, sharedRedis } from "../test/support/redis/server.ts";
import { Children } from "../test/support/runtimes/children.ts";
import { servePage } from "../test/support/runtimes/page.ts";

/** The cases that passed with the ES modules, and with CommonJS where the runtime supports it. */
interface Report {
  readonly modules?: readonly string[];
  readonly commonJs?: readonly string[];
  readonly error?: string;
}

const folder = packIntoFixture("runtimes");
// packed files all have one date, so Deno would run those of an earlier build from its cache
const denoCache = join(folder, "deno-cache");
rmSync(denoCache, { recursive: true, force: true });
addGateway(folder);
// Next.js would report its use
const children = new Children(folder, { NEXT_TELEMETRY_DISABLED: "1", DENO_DIR: denoCache });
const tools = join(folder, "node_modules");
const page = await servePage(folder);
const { url: redisUrl } = await sharedRedis();

const deno = () => oneOf("@deno", "deno");
const bun = () => oneOf("@oven", "bin/bun");
const runtimes: readonly (readonly [name: string, run: () => Promise<Report>])[] = [
  ...[20, 22, 24, 26].map((version) => [`Node ${version}`, () => onNode(version)] as const),
  ["Deno", () => onServerRuntime(deno(), "run", "-A", "--node-modules-dir=manual")],
  ["Bun", () => onServerRuntime(bun())],
  ["workerd", smokeOnWorkerd],
  ["Chromium", async () => (await page.inChromium(children)) as Report],
  ["Deno, deno.ts", () => exampleOn("deno", deno(), "run", "--allow-net=127.0.0.1")],
  ["Bun, bun.ts", () => exampleOn("bun", bun())],
  ["workerd, worker.ts", exampleOnWorkerd],
  ["Next.js, proxy", () => onNext("proxy")],
  ["Next.js, middleware", () => onNext("middleware")],
];

const rows = [["runtime", "ES modules", "CommonJS", "seconds"]];
let failed = 0;
for (const [name, run] of runtimes) {
  const began = performance.now();
  const report = await run().catch((error: unknown): Report => ({ error: `${error}` }));
  const { modules = [], commonJs, error = "no case ran" } = report;
  if (modules.length === 0) {
    failed += 1;
    console.error(`\n✘ ${name}: ${error}`);
  }
  const counts = [modules, commonJs].map((cases) => (cases ? `${cases.length} cases` : "-"));
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  rows.push([name, ...(modules.length === 0 ? ["failed", "failed"] : counts), seconds]);
}
page.close();
console.log();
for (const row of rows) console.log(row.map((cell) => cell.padEnd(26)).join(""));
console.log(`\n${runtimes.length - failed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;

function onNode(version: number): Promise<Report> {
  return onServerRuntime(join(tools, `node-${version}-${platform()}-${arch()}`, "bin/node"));
}

/** Runs main.js, which prints its report on the last line. */
async function onServerRuntime(command: string, ...args: readonly string[]): Promise<Report> {
  const output = await children.outputOf(command, ...args, "main.js", page.origin, redisUrl);
  return JSON.parse(output.trim().split("\n").at(-1) ?? "") as Report;
}

/** Runs an example of the gateway, which sends three requests to a server of the runtime and prints the answers. */
async function exampleOn(name: string, command: string, ...args: readonly string[]) {
  await bundleExample(name, `${name}.mjs`);
  const output = await children.outputOf(command, ...args, `${name}.mjs`);
  return reportOf(output.trim().split("\n"));
}

/**
 * Builds and serves an application with the example.
 *
 * @param file where Next.js looks for it: a proxy runs in Node, a middleware in the Edge runtime
 */
async function onNext(file: "proxy" | "middleware"): Promise<Report> {
  rmSync(join(folder, "next"), { recursive: true });
  cpSync("test/fixtures/runtimes/next", join(folder, "next"), { recursive: true });
  const [example = ""] = readFileSync("gateway/examples/next-middleware.ts", "utf8").split(
    "// here, without Next.js",
  );
  const { code } = await transform(example, { loader: "ts" });
  writeFileSync(join(folder, "next", `${file}.js`), code);
  const next = join(tools, "next/dist/bin/next");
  await children.outputOf(process.execPath, next, "build", "next");
  const port = `${likelyFreePort()}`;
  const headers = { "x-forwarded-for": "192.0.2.1" };
  const args = [next, "start", "next", "-H", "127.0.0.1", "-p", port];
  return children.serving(process.execPath, args, () =>
    askThrice(`http://127.0.0.1:${port}/api/cats`, headers),
  );
}

/** @param lines the answers to three requests of one client, which may send two: statuses first */
function reportOf(lines: readonly string[]): Report {
  const statuses = lines.map((line) => line.slice(0, 3)).join();
  if (statuses !== "200,200,429") throw new Error(`found ${lines.join("; ")}`);
  return { modules: lines };
}

/** Bundles an example with the built packages, without modules of Node. */
async function bundleExample(name: string, outfile: string): Promise<void> {
  await build({
    entryPoints: [`gateway/examples/${name}.ts`],
    outfile: join(folder, outfile),
    tsconfig: "tsconfig.build.json",
    bundle: true,
    format: "esm",
    platform: "browser",
    conditions: ["worker", "browser"],
  });
}

async function smokeOnWorkerd(): Promise<Report> {
  await build({
    absWorkingDir: folder,
    entryPoints: ["worker.js"],
    outfile: join(folder, "bundle.js"),
    bundle: true,
    format: "esm",
    platform: "neutral",
    conditions: ["workerd", "worker"],
    mainFields: [],
  });
  return onWorkerd(async (url) => {
    const response = await whenUp(`${url}?origin=${encodeURIComponent(page.origin)}`);
    return (await response.json()) as Report;
  });
}

async function exampleOnWorkerd(): Promise<Report> {
  await bundleExample("worker", "bundle.js");
  return onWorkerd((url) => askThrice(url, { "cf-connecting-ip": "192.0.2.1" }));
}

async function askThrice(url: string, headers: Record<string, string>): Promise<Report> {
  const lines: string[] = [];
  for (let i = 0; i < 3; i++) {
    const response = await whenUp(url, { headers });
    lines.push(`${response.status} ${response.headers.get("ratelimit")}`);
  }
  return reportOf(lines);
}

/** Serves bundle.js. */
async function onWorkerd(ask: (url: string) => Promise<Report>): Promise<Report> {
  const port = likelyFreePort();
  const address = `--socket-addr=http=127.0.0.1:${port}`;
  const args = ["serve", "worker.capnp", address];
  return children.serving(oneOf("@cloudflare", "bin/workerd"), args, () =>
    ask(`http://127.0.0.1:${port}/`),
  );
}

async function whenUp(url: string, init?: RequestInit): Promise<Response> {
  for (;;) {
    const response = await fetch(url, init).catch(() => undefined);
    if (response !== undefined) return response;
    await sleep(100);
  }
}

/** Returns a file of the only installed package in a scope: npm installs the one with this platform's binary. */
function oneOf(scope: string, path: string): string {
  const [name] = readdirSync(join(tools, scope));
  return join(tools, scope, `${name}`, path);
}
