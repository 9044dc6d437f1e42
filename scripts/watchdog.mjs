// A worker, so that it bites even while the main thread is stuck in a loop. Each message says what
// is going on now and, if it sets a new limit, how long that may take.

import { writeSync } from "node:fs";
import { parentPort } from "node:worker_threads";

let doing = "starting";
let timer;

parentPort.on("message", (message) => {
  doing = message.doing;
  if (message.limitMs === undefined) return;
  clearTimeout(timer);
  timer = setTimeout(() => {
    writeSync(2, `\nStopped, the time limit is over. Last seen: ${doing}\n`);
    process.kill(process.pid, "SIGKILL");
  }, message.limitMs);
});
