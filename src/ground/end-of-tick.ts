/**
 * Runs work at the end of this tick of the event loop, after its callers have made their requests. All
 * work shares one microtask: one for each limiter would cost more than the work.
 */
const settled = Promise.resolve();
let tasks: (() => void)[] = [];

/** Runs the task with the microtasks of this tick, after the tasks that came before it. */
export function atEndOfTick(task: () => void): void {
  if (tasks.push(task) === 1) void settled.then(run);
}

/** Runs all, and those that they add. One that throws does not keep the others from running. */
function run(): void {
  let done = 0;
  try {
    for (const task of tasks) {
      done += 1;
      task();
    }
  } finally {
    tasks = tasks.slice(done);
    if (tasks.length > 0) void settled.then(run);
  }
}
