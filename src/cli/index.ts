#!/usr/bin/env node
import process from "node:process";
import { run } from "./program.ts";

// whoever reads only the beginning, as head does, is no fault
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit();
});

process.exitCode = await run(process.argv.slice(2), process);
