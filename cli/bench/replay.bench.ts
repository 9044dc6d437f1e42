/**
 * How fast does `smooth-limiter replay` play an access log, and does its memory grow with the log? 1 000 000 lines may take at
 * most 15 s, and ten times the lines of the same clients may need at most 1.5 times the memory. The lower bound is the time to read the lines. Each run is a
 * separate process that runs the built command.
 */
import { spawnSync } from "node:child_process";
import { createWriteStream, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { short } from "../../bench/lib/options.ts";
import { table, target, times } from "../../bench/lib/report.ts";
import { accessLog } from "../examples/lib/access-log.ts";

const LINES = short ? 200_000 : 1_000_000;
const LONGEST_S = (15 * LINES) / 1_000_000;

const RULES = `
- url: /
  rules:
    - { name: all, actor: all, unit: second, rpu: 500, algo: SW }
    - { name: device, actor: device, unit: minute, rpu: 60 }
- url: /api
  rules:
    - { name: api, actor: all, unit: second, rpu: 50, algo: LB }
`;

const READ_LINES = `
  import { createReadStream } from "node:fs";
  import { createInterface } from "node:readline";
  let lines = 0;
  for await (const line of createInterface({ input: createReadStream(process.argv[1]) })) lines += line.length > 0;
`;
/** Printed by each process when it ends: peak memory in KiB and processor time in µs. */
const PRINT_USAGE = `process.on("exit", () => {
  const { maxRSS, userCPUTime } = process.resourceUsage();
  process.stderr.write("\\n" + JSON.stringify([maxRSS, userCPUTime]));
})`;

interface Run {
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly megabytes: number;
}

function run(...args: string[]): Run {
  const printUsage = `data:text/javascript,${encodeURIComponent(PRINT_USAGE)}`;
  const started = performance.now();
  const { status, stderr } = spawnSync(process.execPath, ["--import", printUsage, ...args], {
    encoding: "utf8",
    maxBuffer: 2 ** 28,
    env: { ...process.env, NODE_OPTIONS: "" },
  });
  const seconds = (performance.now() - started) / 1000;
  if (status !== 0) throw new Error(`exit code ${status}: ${stderr.slice(0, 2000)}`);
  const [kilobytes, micros] = JSON.parse(stderr.slice(stderr.lastIndexOf("\n"))) as [
    number,
    number,
  ];
  return { seconds, cpuSeconds: micros / 1e6, megabytes: kilobytes / 1024 };
}

const folder = mkdtempSync(join(tmpdir(), "replay-bench-"));
try {
  const rules = join(folder, "rules.yaml");
  writeFileSync(rules, RULES);
  const made = { perSecond: 400, clients: 5000, paths: ["/", "/api/users", "/shop/1"] };
  const logOf = async (lines: number) => {
    const log = join(folder, `${lines}.log`);
    await pipeline(Readable.from(accessLog(lines, made)), createWriteStream(log));
    return log;
  };
  const [tenth, whole] = [await logOf(LINES / 10), await logOf(LINES)];
  const command = resolve("cli/dist/index.js");
  const replay = (log: string) => run(command, "replay", rules, log, "--json");
  const runs: readonly (readonly [string, number, Run])[] = [
    ["readline, lines counted", LINES, run("--input-type=module", "-e", READ_LINES, whole)],
    ["replay, a tenth", LINES / 10, replay(tenth)],
    ["replay", LINES, replay(whole)],
  ];
  table(
    ["", "lines", "s", "processor time, s", "lines/s", "peak memory"],
    runs.map(([name, lines, { seconds, cpuSeconds, megabytes }]) => [
      name,
      lines.toLocaleString("en"),
      seconds.toFixed(1),
      cpuSeconds.toFixed(1),
      Math.round(lines / seconds).toLocaleString("en"),
      `${megabytes.toFixed(0)} MB`,
    ]),
  );
  const [, [, , small], [, , large]] = runs as [unknown, (typeof runs)[0], (typeof runs)[0]];
  const got = `${large.seconds.toFixed(1)} s, of which ${large.cpuSeconds.toFixed(1)} s of processor time`;
  // a process that gets only half a core takes twice as long, which says nothing about the command
  const isBusy = large.seconds > 1.5 * large.cpuSeconds;
  const isQuick = large.seconds <= LONGEST_S;
  target(
    `${LINES.toLocaleString("en")} lines, at most ${LONGEST_S} s`,
    isQuick || !isBusy ? isQuick : undefined,
    got,
  );
  const growth = large.megabytes / small.megabytes;
  target(
    "ten times the lines of the same clients, at most 1.5 × the memory",
    growth <= 1.5,
    times(growth),
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
