import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import * as assert from "uvu/assert";
import { bundled } from "../../test/support/bundled.ts";
import { suite } from "../../test/support/suite.ts";
import { cli, inFolder } from "./support/run.ts";

const test = suite("command line");

const RULES = "url: /\nrules: [{ actor: all, unit: second, rpu: 1 }]";

/** In one file, as the package has it: it looks for its package.json in the folder above. */
const program = bundled("cli/src/index.ts", "cli/.cache");

async function start(stdin: string, args = ["check", "-"]) {
  const child = spawn(process.execPath, [await program, ...args]);
  child.stdin.end(stdin);
  return child;
}

test("a process reads stdin, and exits with its code", async () => {
  const child = await start("url: nowhere");
  const [out, [code]] = await Promise.all([text(child.stdout), once(child, "close")]);
  assert.match(out, /nowhere/);
  assert.is(code, 1);
});

test("a reader that stops early changes neither files nor exit codes", async () => {
  const log = `${JSON.stringify({ time: 1, url: "/" })}\n`;
  await inFolder({ "rules.yaml": RULES }, async (path) => {
    const html = path("report.html");
    for (const [stdin, wanted, ...args] of [
      [RULES, 0, "check", "-"],
      ["url: nowhere", 1, "check", "-"],
      [log, 0, "replay", path("rules.yaml"), "-", "--html", html],
    ] as const) {
      const child = await start(stdin, args);
      child.stdout.destroy();
      const [err, [code]] = await Promise.all([text(child.stderr), once(child, "close")]);
      assert.equal([code, err], [wanted, ""], args.join(" "));
    }
    assert.match(readFileSync(html, "utf8"), /<\/html>\n$/);
  });
});

test("an output that cannot be written is an error in one line, with code 2", async () => {
  if (!existsSync("/dev/full")) return;
  const full = openSync("/dev/full", "w");
  const child = spawn(process.execPath, [await program, "--help"], { stdio: ["ignore", full] });
  const [err, [code]] = await Promise.all([text(child.stderr as Readable), once(child, "close")]);
  closeSync(full);
  assert.is(code, 2);
  assert.match(err, /^stdout: cannot be written: ENOSPC.*\n$/);
});

test("help and version go to stdout, with code 0", async () => {
  const help = await cli(["--help"]);
  assert.is(help.code, 0);
  assert.match(help.out, /check \[options\]/);
  assert.match(help.out, /Examples:\n {2}\$ smooth-limiter check rules\.yaml/);
  for (const command of ["check", "replay"]) {
    const { code, out } = await cli([command, "--help"]);
    assert.is(code, 0);
    assert.match(out, /Examples:\n {2}\$ smooth-limiter /);
    assert.match(out, /Exit codes:\n {2}0 {2}success/);
    assert.match(out, /may be repeated\s+\(default: none\)/);
  }
  const limitKey = await cli(["redis", "set-limit-key", "--help"]);
  assert.match(limitKey.out, /key +the limitKey in the code .*Exit codes:\n {2}0 {2}success/s);
  const version = await cli(["--version"]);
  assert.match(version.out, /^\d+\.\d+\.\d+\n$/);
  assert.equal([version.code, version.err], [0, ""]);
});

test("wrong usage is reported on stderr, with code 2", async () => {
  for (const [args, words] of [
    [[], /Usage/],
    [["frob"], /unknown command 'frob'/],
    [["check"], /missing required argument 'rules'/],
    [["check", "--frob", "-"], /unknown option '--frob'/],
    [["replay", "-"], /missing required argument 'log'/],
    [["replay", "-", "-"], /cannot both be read from stdin/],
    [["replay", "-", "log", "--top", "-1"], /--top <count>.*whole number/],
    [["replay", "-", "log", "--hold", "x"], /--hold <seconds>.*number of seconds/],
    [["replay", "-", "log", "--field", "time"], /it must be name=field/],
  ] as const) {
    const { code, out, err } = await cli(args);
    assert.equal([code, out], [2, ""], args.join(" "));
    assert.match(err, words);
  }
});

test("a file that cannot be read: its name and why, code 2", async () => {
  await inFolder(
    { "rules.yaml": RULES, "bad.gz": Buffer.from([0x1f, 0x8b, 8, 0, 1, 2, 3]) },
    async (path) => {
      for (const args of [
        ["check", path("none.yaml")],
        ["check", path(".")],
        ["replay", path("none.yaml"), path("none.log")],
        ["replay", path("rules.yaml"), path("none.log")],
        ["replay", path("rules.yaml"), path(".")],
        ["replay", path("rules.yaml"), path("bad.gz")],
      ]) {
        const { code, out, err } = await cli(args);
        assert.equal([code, out], [2, ""], args.join(" "));
        assert.ok(
          err.startsWith(
            `${args.at(args[0] === "replay" && !args[1]?.includes("none") ? 2 : 1)}: cannot be read: `,
          ),
          err,
        );
      }
    },
  );
});

test("a file that is too long for rules is not read to its end", async () => {
  const { code, err } = await cli(["check", "-"], { stdin: "x".repeat(2 ** 24 + 1) });
  assert.is(code, 2);
  assert.match(err, /stdin: cannot be read: more than 16777216 bytes/);
});

test("colours on a terminal only, and never with NO_COLOR", async () => {
  const has = async (setting: Parameters<typeof cli>[1]) => {
    const { out } = await cli(["check", "-"], { stdin: RULES, ...setting });
    return out.includes("\u001b[");
  };
  assert.ok(await has({ isTTY: true }));
  assert.ok(await has({ env: { FORCE_COLOR: "1" } }));
  assert.not.ok(await has({}));
  assert.not.ok(await has({ isTTY: true, env: { NO_COLOR: "1" } }));
  assert.not.ok(await has({ isTTY: true, env: { TERM: "dumb" } }));
  assert.not.ok(await has({ env: { FORCE_COLOR: "0" } }));
});

test.run();
