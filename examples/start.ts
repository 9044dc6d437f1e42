/**
 * One server, three ways to call it. The server is real, enforces its own limit and refuses requests above it. The same
 * work is sent to it without a limiter, with a bursty one and with one that warms up.
 *
 *   npm start
 */
import colors from "picocolors";
import { RateLimiter } from "smooth-limiter";
import { startStrictServer } from "./lib/api-server.ts";
import { ACCEPTED, REFUSED, Timeline } from "./lib/timeline.ts";

/** The number of requests that the server lets in within any second. */
const SERVER_LIMIT = 15;
/** The work is two batches of so many requests, and a pause between them, ms. */
const BATCH = 30;
const PAUSE_MS = 1000;

const COLUMNS = ["accepted", "refused", "busiest second", "took"] as const;
const results: { name: string; cells: Record<(typeof COLUMNS)[number], string>; bad: boolean }[] =
  [];

async function run(name: string, code: string, what: string, limiter?: RateLimiter): Promise<void> {
  console.log(`\n${colors.bold(name)}   ${colors.cyan(code)}\n${what}\n`);
  const server = await startStrictServer(SERVER_LIMIT);
  const startedAt = performance.now();
  const timeline = new Timeline();

  const send = async () => {
    await limiter?.acquire();
    const { status } = await fetch(server.url);
    timeline.mark(status === 200);
  };
  await Promise.all(Array.from({ length: BATCH }, send));
  await timeline.rest(PAUSE_MS);
  await Promise.all(Array.from({ length: BATCH }, send));

  const seconds = (performance.now() - startedAt) / 1000;
  timeline.end();
  await server.close();
  results.push({
    name,
    bad: server.refused > 0,
    cells: {
      accepted: `${server.accepted} of ${2 * BATCH}`,
      refused: String(server.refused),
      "busiest second": `${server.busiestSecond()} sent`,
      took: `${seconds.toFixed(1)} s`,
    },
  });
}

function summary(): string {
  const row = (name: string, cells: readonly string[], colour: (text: string) => string) =>
    `  ${colors.bold(name.padEnd(12))}${colour(cells.map((cell) => cell.padStart(16)).join(""))}`;
  const rows = results.map(({ name, cells, bad }) =>
    row(name, Object.values(cells), bad ? colors.red : colors.green),
  );
  return [row("", COLUMNS, colors.dim), ...rows].join("\n");
}

console.log(`${colors.bold("One server, three ways to call it")}

The server lets in ${SERVER_LIMIT} requests in any second and answers 429 to the rest.
The work: ${BATCH} requests, a pause of a second, ${BATCH} requests more.
A row is half a second:  ${ACCEPTED} accepted  ${REFUSED} refused`);

await run("No limiter", "await fetch(url)", "All requests of a batch are sent at once.");
await run(
  "Bursty",
  "RateLimiter.create(10, { burstSeconds: 0.3 })",
  "10 a second. After the pause up to 3 saved permits are used at once.",
  RateLimiter.create(10, { burstSeconds: 0.3 }),
);
await run(
  "Warming up",
  "RateLimiter.create(10, { warmupMs: 1000 })",
  "10 a second when warm. At the start and after a pause the rate is a third of that.",
  RateLimiter.create(10, { warmupMs: 1000 }),
);

console.log(`\n${colors.bold("Summary")}\n\n${summary()}

With a limiter, a call is two lines:  ${colors.cyan("await limiter.acquire();  await fetch(url);")}
More examples:  ${colors.cyan("npm run examples")}`);
