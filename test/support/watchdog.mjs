// A worker thread, so that it works even while the main thread is stuck in a loop. Each message says what the
// main thread is doing, and how long that may take.

import { writeSync } from "node:fs";
import { parentPort } from "node:worker_threads";

let timer;

parentPort.on("message", ({ doing, limitMs }) => {
  clearTimeout(timer);
  timer = setTimeout(() => {
    writeSync(2, `\nStopped after ${limitMs / 1000} s: ${doing}\n`);
    process.kill(process.pid, "SIGKILL");
  }, limitMs);
});
