/** Measurements of memory, which need a separate process for each candidate. */
import { spawnSync } from "node:child_process";

const FLAG = "--weigh";

/** Runs the file in a new process for one candidate, and returns the report of that process. */
export function apart<Report>(file: string, name: string): Report {
  const { stdout, stderr } = spawnSync(
    process.execPath,
    [...process.execArgv, "--expose-gc", file, ...process.argv.slice(2), FLAG, name],
    { encoding: "utf8", maxBuffer: 2 ** 28 },
  );
  if (stdout === "") throw new Error(`weighing ${name} failed: ${stderr.slice(0, 2000)}`);
  return JSON.parse(stdout) as Report;
}

/** In such a process: reports on the candidate, and ends the process. In the main process it does nothing. */
export async function reportIfApart(weigh: (name: string) => Promise<object>): Promise<void> {
  const asked = process.argv.indexOf(FLAG);
  if (asked < 0) return;
  console.log(JSON.stringify(await weigh(process.argv[asked + 1] ?? "")));
  process.exit();
}

/** Returns the bytes in use after garbage collections. */
export async function heap(): Promise<number> {
  for (let i = 0; i < 5; i++) await new Promise(setImmediate);
  for (let i = 0; i < 3; i++) globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}
