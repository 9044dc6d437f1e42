// A worker thread, so that it works even while the main thread is stuck in a loop. Each message says what the
// main thread is doing and, if it sets a new limit, how long that may take.

import { writeSync } from "node:fs";
import { parentPort } from "node:worker_threads";

let doing = "starting";
let timer;

parentPort.on("message", (message) => {
  doing = message.doing;
  if (message.limitMs === undefined) return;
  clearTimeout(timer);
  timer = setTimeout(() => {
    writeSync(2, `\nStopped: the time limit is over. Last step: ${doing}\n`);
    process.kill(process.pid, "SIGKILL");
  }, message.limitMs);
});
