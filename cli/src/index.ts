#!/usr/bin/env node
import process from "node:process";
import { CANNOT, run } from "./program.ts";

// a reader that stops early, such as `head`, is not an error: the command goes on, for its files and its exit code
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") return;
  process.stderr.write(`stdout: cannot be written: ${error.message}\n`);
  process.exit(CANNOT);
});
process.stderr.on("error", () => {});

process.exitCode = await run(process.argv.slice(2), process);
