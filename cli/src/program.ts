import { readFileSync } from "node:fs";
import { Command, CommanderError } from "commander";
import type { CheckOptions } from "./check/check.ts";
import { CliError, colorsOf, type Io, printable } from "./io.ts";
import { repeatable, seconds, wholeNumber } from "./options.ts";
import { addRedisCommands } from "./redis/program.ts";
import { DEFAULT_FIELDS, type Fields } from "./replay/log-entry.ts";
import type { ReplayOptions } from "./replay/replay.ts";

const EXIT_CODES = `
Exit codes:
  0  success; check may have found warnings
  1  check found errors, or warnings with --strict; redis show found nothing
  2  wrong usage, a file that cannot be read or written, invalid rules or no request for replay,
     a Redis that cannot be reached, gives no answer or refuses, or a change that a limiter does not allow`;

const HELP = `
Examples:
  $ smooth-limiter check rules.yaml
  $ smooth-limiter replay rules.yaml access.log --html report.html
  $ smooth-limiter redis ls`;

const CHECK_HELP = `
Examples:
  $ smooth-limiter check --strict --redis rules.yaml
  $ smooth-limiter check --actor tenant --cost tokens rules/*.yaml`;

const REPLAY_HELP = `
Examples:
  $ smooth-limiter replay rules.yaml access.log.gz
  $ smooth-limiter replay rules.yaml - --html report.html < access.log
  $ smooth-limiter replay rules.yaml access.log --trusted-proxies 1
  $ smooth-limiter replay rules.yaml app.jsonl --field time=at --field tenant=org.id`;

/** The exit codes: a command found something that its user must know; wrong usage, or a file that cannot be used. */
const FINDINGS = 1;
export const CANNOT = 2;

/**
 * Runs the command line. Each command is loaded when it is used: the gateway, which `redis` does not need, takes
 * longer to load than the help to print.
 *
 * @param args without the program's own name
 * @param io the input and output
 * @returns the exit code: 0 success, 1 findings, 2 wrong usage or an unreadable file
 */
export async function run(args: readonly string[], io: Io): Promise<number> {
  let code = 0;
  const program = newProgram(io, () => {
    code = FINDINGS;
  });
  try {
    await program.parseAsync([...args], { from: "user" });
    return code;
  } catch (error) {
    // commander has printed the message
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : CANNOT;
    if (!(error instanceof CliError)) throw error;
    const message = error.message.split("\n").map(printable).join("\n");
    io.stderr.write(`${colorsOf(io, io.stderr).red(message)}\n`);
    return CANNOT;
  }
}

/** @param fail is called if a command found something that its user must know */
function newProgram(io: Io, fail: () => void): Command {
  const program = new Command("smooth-limiter")
    .description(
      "Checks rules of the gateway, replays access logs against them, and shows limiters on Redis.",
    )
    .version(version())
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      getOutHasColors: () => colorsOf(io, io.stdout).isColorSupported,
      getErrHasColors: () => colorsOf(io, io.stderr).isColorSupported,
    })
    .showHelpAfterError("(see smooth-limiter --help)")
    .addHelpText("after", HELP)
    .addHelpText("afterAll", EXIT_CODES);

  program
    .command("check")
    .description("reports errors (exit code 1) and probable mistakes in files of rules")
    .argument("<rules...>", 'files of rules; "-" is stdin')
    .option("--strict", "warnings count as errors")
    .option("--redis", "the gateway has Redis, so scope global is allowed")
    .addOption(repeatable("--actor <name>", "an actor that the application registers"))
    .addOption(repeatable("--actor-kind <name>", "a kind of actors that it registers"))
    .addOption(repeatable("--cost <name>", "a function that it registers for costs"))
    .option("--json", "the findings as JSON")
    .addHelpText("after", CHECK_HELP)
    .action(async (paths: readonly string[], options: CheckOptions) => {
      const { check } = await import("./check/check.ts");
      if (!(await check(paths, options, io))) fail();
    });

  program
    .command("replay")
    .description("reports what rules would have done with the requests of an access log")
    .argument("<rules>", "the file of rules")
    .argument("<log>", 'combined format or JSON lines, also as .gz; "-" is stdin')
    .option("--json", "the report as JSON")
    .option(
      "--html <file>",
      'also writes a report with charts to this file; "-" is stdout, instead of the text',
    )
    .option("--top <count>", "how many actors of each rule to list", wholeNumber(0, 9999), 10)
    .addOption(
      repeatable(
        "--field <name=field>",
        "the field of JSON lines with the time, address, forwarded (a forwarded-for list), method, url, status, account or another actor",
      ),
    )
    .addOption(
      repeatable(
        "--cost <name>",
        "a function that the application registers for costs, which counts as 1",
      ),
    )
    .option(
      "--trusted-proxies <count>",
      "how many of your own proxies append to forwarded-for lists in the log: the client's address is that many elements from the end",
      wholeNumber(0, 9999),
      0,
    )
    .option("--hash <key>", "replaces actors by a hash with this key")
    .option("--hold <seconds>", "by how many seconds lines may be out of order", seconds, 10)
    .option("--no-spread", "do not spread the lines of one second evenly over it")
    .option("--no-progress", "do not show progress on a terminal")
    .addHelpText("after", REPLAY_HELP)
    .action(async (rules: string, log: string, { field, hold, ...options }: ReplayFlags) => {
      const { replay } = await import("./replay/replay.ts");
      const fields = withFields(field);
      await replay(rules, log, { ...options, fields, holdMs: hold * 1000 }, io);
    });
  addRedisCommands(program, io, fail);
  return program;
}

interface ReplayFlags extends Omit<ReplayOptions, "fields" | "holdMs"> {
  readonly field: readonly string[];
  /** Seconds. */
  readonly hold: number;
}

function version(): string {
  const text = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  return String((JSON.parse(text) as { version: unknown }).version);
}

/** A field that is given with `--field` replaces the default names of that field. */
function withFields(given: readonly string[]): Fields {
  const { actors: defaultActors, ...defaults } = DEFAULT_FIELDS;
  const [fields, actors] = [{ ...defaults }, { ...defaultActors }];
  for (const each of given) {
    const [, name = "", field = ""] = /^([^=]+)=(.+)$/s.exec(each) ?? [];
    if (name === "") {
      throw new CliError(`--field ${each}: it must be name=field, such as time=ts`);
    }
    Object.assign(Object.hasOwn(fields, name) ? fields : actors, { [name]: [field] });
  }
  return { ...fields, actors };
}
