import { stat, writeFile } from "node:fs/promises";
import { type RequestRule, RulesError, readRules } from "smooth-limiter-gateway/rules";
import {
  CliError,
  type Io,
  json,
  open,
  printable,
  readText,
  sourceName,
  unreadable,
} from "../io.ts";
import { htmlReport } from "../report/html.ts";
import type { Replayed } from "../report/report.ts";
import { textReport } from "../report/text.ts";
import { number, some } from "../words.ts";
import { InOrder } from "./in-order.ts";
import { LONGEST_LINE, readLines } from "./lines.ts";
import { seemsForwarded, type Unread } from "./log-client.ts";
import { type Fields, type LogEntry, readLine } from "./log-entry.ts";
import { zoneMinutesOf } from "./log-time.ts";
import { note, progressBar } from "./progress.ts";
import { Simulation } from "./simulation.ts";

export interface ReplayOptions {
  readonly json?: boolean;
  /** The path of the HTML report; "-" is stdout, where it replaces the text. */
  readonly html?: string;
  /** How many actors of each rule are listed. */
  readonly top: number;
  /** How long lines are held to be sorted, ms. */
  readonly holdMs: number;
  /** Whether lines of one whole second are spread over it. */
  readonly spread: boolean;
  readonly fields: Fields;
  /** How many of the application's own proxies have appended to forwarded-for lists. */
  readonly trustedProxies: number;
  /** Names of functions of the application that compute costs. */
  readonly cost: readonly string[];
  readonly hash?: string;
  readonly progress: boolean;
}

const TOO_LONG: Unread = { column: 1, message: "found a line that is too long for a log" };

/** How many lines are searched for forwarded-for lists that do not count. */
const LOOKED_AT = 1000;
const IGNORED_LIST =
  "this line seems to have a forwarded-for list, but the address of the connection counts; if that is a proxy of yours, add --trusted-proxies 1";

/** How many unreadable lines are reported one by one. */
const NAMED = 5;

export async function replay(
  rulesPath: string,
  logPath: string,
  options: ReplayOptions,
  io: Io,
): Promise<void> {
  if (rulesPath === "-" && logPath === "-") {
    throw new CliError("rules and log cannot both be read from stdin");
  }
  if (options.html === "-" && options.json) {
    throw new CliError("--json and --html - cannot both be written to stdout");
  }
  const rules = await readRulesOf(rulesPath, options, io);
  const replayed = {
    rulesFrom: sourceName(rulesPath),
    log: sourceName(logPath),
    ...(await playLog(rules, logPath, options, io)),
  };
  if (options.html === "-") {
    io.stdout.write(htmlReport(replayed));
    return;
  }
  // the report that can be printed must not be lost if a file cannot be written
  io.stdout.write(options.json ? json(replayed) : textReport(replayed, io));
  if (options.html !== undefined) await write(options.html, htmlReport(replayed));
}

async function readRulesOf(
  path: string,
  { fields, cost: costs }: ReplayOptions,
  io: Io,
): Promise<readonly RequestRule[]> {
  const text = await readText(path, io);
  const actors = Object.keys(fields.actors);
  // --field claim:org=path: a kind of actor, and its argument
  const actorKinds = actors.flatMap((name) => /^([^:]+):/.exec(name)?.[1] ?? []);
  try {
    const rules = readRules(text, { source: sourceName(path), actors, actorKinds, costs });
    const played = rules.filter((rule): rule is RequestRule => rule.quotaUnit === undefined);
    const left = rules.length - played.length;
    if (left > 0) {
      io.stderr.write(
        `${some(left, "rule")} for connections or bytes not played: a log does not contain how long responses took\n`,
      );
    }
    return played;
  } catch (error) {
    if (error instanceof RulesError) throw new CliError(error.message, { cause: error });
    throw error;
  }
}

async function playLog(
  rules: readonly RequestRule[],
  logPath: string,
  { holdMs, spread, fields, trustedProxies, top, hash, progress }: ReplayOptions,
  io: Io,
): Promise<Omit<Replayed, "rulesFrom" | "log">> {
  const order = new InOrder(holdMs, spread);
  // a pipe has no size, and a file that does not exist is an error below
  const found = logPath === "-" ? undefined : await stat(logPath).catch(() => undefined);
  const size = found?.isFile() ? found.size : undefined;
  const bar = progressBar(size, io.stderr);
  let simulation: Simulation | undefined;
  let lines = 0;
  let unread = 0;
  let zoneMinutes: number | undefined;
  let mayIgnoreList = trustedProxies === 0;
  const play = async (entries: Iterable<[number, LogEntry]>) => {
    for (const [atMs, entry] of entries) {
      simulation ??= await Simulation.open(rules, Object.keys(fields.actors), atMs);
      const woken = simulation.play(atMs, entry);
      if (woken !== undefined) await woken;
    }
  };
  const source = open(logPath, io);
  const { stackTraceLimit } = Error;
  // a full queue is an error inside the gateway; its stack trace would take longer than the request
  Error.stackTraceLimit = 0;
  if (progress) bar.start(size ?? 0, 0, { lines });
  try {
    for await (const batch of readLines(source)) {
      for (const line of batch) {
        lines += 1;
        if (line.trim() === "") continue;
        const isTooLong = line.length > LONGEST_LINE;
        const entry = isTooLong ? TOO_LONG : readLine(line, fields, trustedProxies);
        if (!("message" in entry)) {
          zoneMinutes ??= zoneMinutesOf(line);
          order.add(entry);
          if (mayIgnoreList && lines <= LOOKED_AT && seemsForwarded(line)) {
            mayIgnoreList = false;
            note(`${sourceName(logPath)}:${lines}: ${IGNORED_LIST}`, bar, io.stderr);
          }
          continue;
        }
        unread += 1;
        if (unread > NAMED) continue;
        const where = `${sourceName(logPath)}:${lines}:${entry.column}`;
        note(`${where}: ${printable(entry.message.slice(0, 200))}`, bar, io.stderr);
      }
      if (bar.isActive) bar.update(source.bytesRead ?? 0, { lines: number(lines) });
      await play(order.due());
    }
    await play(order.rest());
  } catch (error) {
    throw isReading(error) ? unreadable(logPath, error) : error;
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
    bar.stop();
  }
  if (unread > NAMED) io.stderr.write(`and ${unread - NAMED} more lines that are not requests\n`);
  if (simulation === undefined) throw new CliError(`${sourceName(logPath)}: found no requests`);
  const report = (await simulation.end()).report(top, hash);
  return { lines, unread, late: order.late, zoneMinutes: zoneMinutes ?? 0, report };
}

/** Errors of the file system and of gzip have codes. */
function isReading(error: unknown): boolean {
  const { code } = Object(error) as { code?: unknown };
  return typeof code === "string" && /^(E[A-Z]+|Z_|ERR_STREAM)/.test(code);
}

async function write(path: string, text: string): Promise<void> {
  try {
    await writeFile(path, text);
  } catch (error) {
    throw new CliError(`${path}: cannot be written: ${(error as Error).message}`, { cause: error });
  }
}
