/**
 * When did the event loop stand still? A real-time measurement on a machine that is busy with something else says nothing about a limiter, so what was
 * measured while the loop stood still is left out.
 */
interface Stall {
  readonly from: number;
  readonly to: number;
}

/** In order, those of more than a millisecond beyond the one that is slept. */
const stalls: Stall[] = [];
let last = performance.now();

/** Looks every millisecond, from now on. */
export function watchStalls(): void {
  const now = performance.now();
  if (now - last > 2) stalls.push({ from: last, to: now });
  last = now;
  setTimeout(watchStalls, 1).unref();
}

/** Whether the loop never stood still for longer than `ms` between two instants. */
export function wasCalm(from: number, to: number, ms: number): boolean {
  for (let i = stalls.length - 1; i >= 0; i--) {
    const stall = stalls[i];
    if (stall === undefined || stall.to < from) return true;
    if (stall.from < to && stall.to - stall.from - 1 > ms) return false;
  }
  return true;
}
