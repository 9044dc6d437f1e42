// Timers that test files leave behind. A limiter whose store is away probes it with timers that keep no process alive; in
// a test they would fire among the fake timers of the next file, and be counted there.

const { setTimeout: start, clearTimeout: stop } = globalThis;
const pending = new Set<NodeJS.Timeout>();

function startTimer(callback: (...args: unknown[]) => void, ms?: number, ...args: unknown[]) {
  const fire = () => {
    pending.delete(timer);
    callback(...args);
  };
  const timer = start(fire, ms);
  pending.add(timer);
  return timer;
}

function stopTimer(timer?: NodeJS.Timeout | string | number): void {
  if (typeof timer === "object") pending.delete(timer);
  stop(timer);
}

/** From now on `setTimeout` notes its timers. It keeps the properties of Node's own, such as its promise form. */
export function noteTimers(): void {
  globalThis.setTimeout = Object.assign(startTimer, start) as typeof start;
  globalThis.clearTimeout = stopTimer as typeof stop;
}

/** Stops the noted timers that keep no process alive. The others are reported by `suite.ts`. */
export function stopLeftTimers(): void {
  for (const timer of pending) if (!timer.hasRef()) stop(timer);
  pending.clear();
}
