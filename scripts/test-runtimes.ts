// Runs the packed core in every runtime that it supports: test/fixtures/runtimes/smoke.js in Node, Deno, Bun,
// workerd and headless Chromium, each in its own process. Then it runs the gateway's examples for Deno, Bun and workerd
// there, and that for Next.js in an application that `next` builds and serves. A runtime that cannot be installed counts
// as failed.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { arch, platform, tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { build, transform } from "esbuild";
import { addGateway, packIntoFixture } from "../test/support/pack-into-fixture.ts";
import { headlessChromium } from "../test/support/programs/chromium.ts";
import { likelyFreePort, sharedRedis } from "../test/support/redis/server.ts";

/** The cases that passed with the ES modules, and with CommonJS where the runtime supports it. */
interface Report {
  readonly modules?: readonly string[];
  readonly commonJs?: readonly string[];
  readonly error?: string;
}

const LIMIT_MS = 120_000;

const folder = packIntoFixture("runtimes");
// packed files all have one date, so Deno would run those of an earlier build from its cache
const denoCache = join(folder, "deno-cache");
rmSync(denoCache, { recursive: true, force: true });
addGateway(folder);
const tools = join(folder, "node_modules");
let reported: (report: Report) => void;
const pageReport = new Promise<Report>((resolve) => {
  reported = resolve;
});
const server = await serve();
const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const { url: redisUrl } = await sharedRedis();

const runtimes: readonly (readonly [name: string, run: () => Promise<Report>])[] = [
  ["Node 20", () => onNode(20)],
  ["Node 22", () => onNode(22)],
  ["Node 24", () => onNode(24)],
  ["Node 26", () => onNode(26)],
  ["Deno", () => onServerRuntime(deno(), "run", "-A", "--node-modules-dir=manual")],
  ["Bun", () => onServerRuntime(bun())],
  ["workerd", smokeOnWorkerd],
  ["Chromium", onChromium],
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
server.close();
server.closeAllConnections();
console.log();
for (const row of rows) console.log(row.map((cell) => cell.padEnd(26)).join(""));
console.log(`\n${runtimes.length - failed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;

function onNode(version: number): Promise<Report> {
  return onServerRuntime(join(tools, `node-${version}-${platform()}-${arch()}`, "bin/node"));
}

function deno(): string {
  return oneOf("@deno", "deno");
}

function bun(): string {
  return oneOf("@oven", "bin/bun");
}

/** Runs main.js, which prints its report on the last line. */
async function onServerRuntime(command: string, ...args: readonly string[]): Promise<Report> {
  const output = await outputOf(command, ...args, "main.js", origin, redisUrl);
  return JSON.parse(output.trim().split("\n").at(-1) ?? "") as Report;
}

/** Runs an example of the gateway, which sends three requests to a server of the runtime and prints the answers. */
async function exampleOn(name: string, command: string, ...args: readonly string[]) {
  await bundleExample(name, `${name}.mjs`);
  const output = await outputOf(command, ...args, `${name}.mjs`);
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
  await outputOf(process.execPath, next, "build", "next");
  const port = `${likelyFreePort()}`;
  const child = start(process.execPath, [next, "start", "next", "-H", "127.0.0.1", "-p", port]);
  const headers = { "x-forwarded-for": "192.0.2.1" };
  return serving(child, () => askThrice(`http://127.0.0.1:${port}/api/cats`, headers));
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

async function outputOf(command: string, ...args: readonly string[]): Promise<string> {
  const child = start(command, args);
  const [output, errors, code] = await within(
    Promise.all([text(child.stdout), text(child.stderr), exitOf(child)]),
    child,
  );
  if (code !== 0) throw new Error(`exit code ${code}\n${output}${errors}`);
  return output;
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
    const response = await whenUp(`${url}?origin=${encodeURIComponent(origin)}`);
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
  const child = start(oneOf("@cloudflare", "bin/workerd"), ["serve", "worker.capnp", address]);
  return serving(child, () => ask(`http://127.0.0.1:${port}/`));
}

/** Asks a server, which is then killed. */
async function serving(child: Child, ask: () => Promise<Report>): Promise<Report> {
  const errors = text(child.stderr);
  const ended = exitOf(child).then(async (code) => {
    throw new Error(`exit code ${code}\n${await errors}`);
  });
  try {
    return await within(Promise.race([ask(), ended]), child);
  } finally {
    ended.catch(() => {});
    child.kill("SIGKILL");
  }
}

async function whenUp(url: string, init?: RequestInit): Promise<Response> {
  for (;;) {
    const response = await fetch(url, init).catch(() => undefined);
    if (response !== undefined) return response;
    await sleep(100);
  }
}

async function onChromium(): Promise<Report> {
  const program = await headlessChromium();
  const profile = mkdtempSync(join(tmpdir(), "smooth-limiter-chromium-"));
  const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
  const child = start(
    program.command,
    [...args, "--remote-debugging-port=0", `--user-data-dir=${profile}`, `${origin}/`],
    program.env,
  );
  try {
    return await serving(child, () => pageReport);
  } finally {
    // the processes of the browser may still be writing
    rmSync(profile, { recursive: true, force: true, maxRetries: 20 });
  }
}

/** Serves the page, the packed core and `/fine`, and receives the page's report. */
async function serve(): Promise<Server> {
  const { exports } = JSON.parse(readFileSync("package.json", "utf8")) as {
    exports: Record<string, { import?: { default: string } }>;
  };
  const imports = Object.entries(exports).flatMap(([entry, { import: target }]) =>
    target === undefined ? [] : [[`smooth-limiter${entry.slice(1)}`, `/package/${target.default}`]],
  );
  const map = JSON.stringify({ imports: Object.fromEntries(imports) });
  const page = `<script type="importmap">${map}</script><script type="module" src="/page.js"></script>`;
  const http = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    if (pathname === "/report") reported(JSON.parse(await text(request)) as Report);
    response.setHeader("content-type", pathname === "/" ? "text/html" : "text/javascript");
    response.end(pathname === "/" ? page : pathname === "/fine" ? "fine" : served(pathname));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return http;
}

function served(pathname: string): Buffer | undefined {
  const file = join(folder, pathname.replace("/package/", "/node_modules/smooth-limiter/"));
  return existsSync(file) ? readFileSync(file) : undefined;
}

/** Returns a file of the only installed package in a scope: npm installs the one with this platform's binary. */
function oneOf(scope: string, path: string): string {
  const [name] = readdirSync(join(tools, scope));
  return join(tools, scope, `${name}`, path);
}

type Child = ReturnType<typeof start>;

function start(command: string, args: readonly string[], env = process.env) {
  // Next.js would report its use
  const quiet = { ...env, NEXT_TELEMETRY_DISABLED: "1", DENO_DIR: denoCache };
  return spawn(command, args, { cwd: folder, env: quiet, stdio: ["ignore", "pipe", "pipe"] });
}

async function exitOf(child: ChildProcess): Promise<unknown> {
  const [code, signal] = await once(child, "close");
  return code ?? signal;
}

/** Waits for `done`. Kills the child after the time limit. */
async function within<T>(done: Promise<T>, child: ChildProcess): Promise<T> {
  const timer = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
  try {
    return await done;
  } finally {
    clearTimeout(timer);
  }
}
