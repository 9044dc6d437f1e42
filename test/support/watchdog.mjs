// A worker thread, so that it works even while the main thread is stuck in a loop. Memory that both share says how many
// steps the main thread has begun, how long the present one may take, and what it is.

import { writeSync } from "node:fs";
import { workerData } from "node:worker_threads";

const LOOK_MS = 500;
const counts = new Int32Array(workerData, 0, 2);
let [step, since] = [0, performance.now()];

setInterval(() => {
  const [now, limitMs] = counts;
  if (now !== step) [step, since] = [now, performance.now()];
  if (performance.now() - since < limitMs) return;
  const doing = Buffer.from(workerData, 8).toString().replaceAll("\0", "");
  writeSync(2, `\nStopped after ${limitMs / 1000} s: ${doing}\n`);
  process.kill(process.pid, "SIGKILL");
}, LOOK_MS);
