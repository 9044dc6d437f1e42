// The pages by task. A page that is in no group is an error, so that none is lost.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** For each group: its pages, by their paths without ".md", and shorter names where a heading is long. */
const GROUPS: Readonly<
  Record<string, readonly (string | readonly [page: string, text: string])[]>
> = {
  Start: [
    "docs/get-started",
    "docs/how-it-works",
    "docs/choose-numbers",
    ["docs/choose", "Which algorithm?"],
    ["playground", "Playground"],
    ["playground-concurrency", "Playground: concurrency"],
    ["playground-regions", "Playground: regions"],
  ],
  "Use it": [
    ["docs/fetch", "Calls to an API"],
    "docs/job-queues",
    "docs/bullmq",
    "docs/streams",
    ["docs/llm", "Language models"],
    ["docs/per-key", "A limit per user"],
    ["docs/fair", "Fair order"],
    "docs/concurrency",
    "docs/recipes",
    "docs/testing",
  ],
  "HTTP servers": [
    ["gateway/README", "The gateway"],
    ["gateway/docs/http", "In your server"],
    "gateway/docs/gateway",
    ["gateway/docs/matching", "Which rules apply"],
    "gateway/docs/actors",
    "gateway/docs/connections",
    "gateway/docs/options",
    ["gateway/docs/security", "Security"],
  ],
  "Share one limit": [
    ["docs/redis", "Redis"],
    "docs/postgres",
    "docs/stores",
    ["docs/availability", "Outages"],
    ["docs/outage-bounds", "What an outage lets through"],
    ["docs/changing-limits", "Changing it at run time"],
    ["docs/prefetch", "Fewer round trips"],
    ["docs/scale", "Many processes"],
    ["docs/regions", "Several regions"],
  ],
  "Run it": [
    ["docs/diagnostics", "Monitoring"],
    "docs/production",
    "docs/troubleshooting",
    "docs/serverless",
    "docs/kubernetes",
    "docs/runtimes",
    ["cli/README", "The command line"],
    ["cli/docs/cli", "Its commands"],
  ],
  Reference: [
    ["docs/README", "By question"],
    ["docs/guarantees", "Guarantees"],
    "docs/glossary",
    ["bench/RESULTS", "Benchmarks"],
    ["bench/README", "How they are measured"],
    ["examples/README", "Examples"],
  ],
  API: [
    ["docs/api", "All names"],
    "docs/api/core",
    "docs/api/redis",
    "docs/api/store",
    "docs/api/postgres",
    "docs/api/regions",
    "docs/api/testing",
    "docs/api/fetch",
    "docs/api/llm",
    "docs/api/p-queue",
    "docs/api/pace",
    "docs/api/streams",
    "docs/api/streams-node",
    "gateway/docs/api/gateway",
    "gateway/docs/api/web",
    "gateway/docs/api/limit",
    "gateway/docs/api/nest",
    "gateway/docs/api/rules",
  ],
  "Coming from": [
    ["docs/from-bottleneck", "bottleneck"],
    ["docs/from-p-throttle", "p-throttle"],
    ["docs/from-limiter", "limiter"],
    ["docs/from-rate-limiter-flexible", "rate-limiter-flexible"],
    ["docs/from-upstash", "@upstash/ratelimit"],
    ["gateway/docs/from-express-rate-limit", "express-rate-limit"],
    ["gateway/docs/from-fastify-rate-limit", "@fastify/rate-limit"],
    ["gateway/docs/from-nestjs-throttler", "@nestjs/throttler"],
    ["gateway/docs/nginx", "nginx"],
    ["docs/from-guava", "Guava"],
    ["docs/from-go-rate", "Go's x/time/rate"],
    ["docs/other-ecosystems", "lua-resty, redis-cell"],
  ],
  "The project": [
    "README",
    ["CHANGELOG", "Changelog"],
    ["gateway/CHANGELOG", "Changelog of the gateway"],
    ["cli/CHANGELOG", "Changelog of the command line"],
    "CONTRIBUTING",
    "ARCHITECTURE",
    "SECURITY",
  ],
};

const FOLDERS = [
  "",
  "docs",
  "docs/api",
  "gateway",
  "gateway/docs",
  "gateway/docs/api",
  "cli",
  "cli/docs",
  "examples",
  "bench",
];

const known = new Set(
  Object.values(GROUPS)
    .flat()
    .map((page) => `${typeof page === "string" ? page : page[0]}`),
);
const lost = FOLDERS.flatMap((folder) =>
  readdirSync(join(root, folder))
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name.slice(0, -".md".length))),
).filter((page) => !known.has(page));
if (lost.length > 0) throw new Error(`no group of the sidebar has ${lost.join(", ")}`);

export const sidebar = Object.entries(GROUPS).map(([text, pages]) => ({
  text,
  items: pages.map((page) => {
    const [path, name] = typeof page === "string" ? [page, headingOf(page)] : page;
    return { text: name, link: `/${path}` };
  }),
}));

function headingOf(page: string): string {
  const text = readFileSync(join(root, `${page}.md`), "utf8");
  const [, heading = page] = /^# (.+)$/m.exec(text) ?? [];
  return heading.replaceAll("`", "");
}
