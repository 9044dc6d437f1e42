import { readFileSync, writeFileSync } from "node:fs";

/** Writes a file; with --check, fails instead if the file has another text. */
export function writeOrCheck(file: string, text: string, command: string): void {
  if (!process.argv.includes("--check")) writeFileSync(file, text);
  else if (readFileSync(file, "utf8") !== text) {
    console.error(`${file} is out of date: run ${command}`);
    process.exitCode = 1;
  }
}
