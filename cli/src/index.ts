#!/usr/bin/env node
import process from "node:process";
import { run } from "./program.ts";

// a reader that stops early, such as `head`, is not an error
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit();
});

process.exitCode = await run(process.argv.slice(2), process);
