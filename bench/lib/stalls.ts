/**
 * Records when the event loop stood still. A real-time measurement during other work of the machine says nothing about a limiter, so
 * such periods are left out.
 */
interface Stall {
  readonly from: number;
  readonly to: number;
}

/** The stalls in order. A gap counts when it exceeds the timer's millisecond by more than another millisecond. */
const stalls: Stall[] = [];
let last = performance.now();

/** Starts to check the event loop every millisecond. */
export function watchStalls(): void {
  const now = performance.now();
  if (now - last > 2) stalls.push({ from: last, to: now });
  last = now;
  setTimeout(watchStalls, 1).unref();
}

/** Returns whether the loop never stood still for longer than `ms` between two instants. */
export function wasCalm(from: number, to: number, ms: number): boolean {
  for (let i = stalls.length - 1; i >= 0; i--) {
    const stall = stalls[i];
    if (stall === undefined || stall.to < from) return true;
    if (stall.from < to && stall.to - stall.from - 1 > ms) return false;
  }
  return true;
}
