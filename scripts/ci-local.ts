// Runs the commands of a job of .github/workflows/ci.yml in a clean clone of the last commit.
//
//   npm run ci:local              the job "change" on this Node
//   npm run ci:local -- macos 22  another job, on another Node, which npx fetches

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { load } from "js-yaml";

interface Workflow {
  readonly jobs: Readonly<Record<string, { readonly steps: readonly { readonly run?: string }[] }>>;
}

const [job = "change", version] = process.argv.slice(2);
const { jobs } = load(readFileSync(".github/workflows/ci.yml", "utf8")) as Workflow;
const steps = jobs[job]?.steps;
if (steps === undefined) throw new Error(`jobs are ${Object.keys(jobs)}; got ${job}`);
const folder = dirname(version === undefined ? process.execPath : pathOfNode(version));
const clone = mkdtempSync(join(tmpdir(), "smooth-limiter-ci-"));
try {
  run(".", "git", "clone", "--quiet", ".", clone);
  for (const { run: command } of steps) {
    if (command === undefined) continue;
    const began = performance.now();
    console.log(`\n=== ${command}`);
    run(clone, "bash", "-ec", `PATH="${folder}:$PATH"; ${command}`);
    console.log(`=== ${((performance.now() - began) / 1000).toFixed(0)} s`);
  }
} finally {
  rmSync(clone, { recursive: true, force: true });
}

function pathOfNode(wanted: string): string {
  const args = ["--yes", "--package", `node@${wanted}`, "--call", "node -p process.execPath"];
  return spawnSync("npx", args, { encoding: "utf8" }).stdout.trim();
}

function run(cwd: string, command: string, ...args: readonly string[]): void {
  const { status } = spawnSync(command, args, { cwd, stdio: "inherit" });
  if (status !== 0) throw new Error(`failed: ${args.at(-1)}`);
}
