/**
 * The processor time of this process so far, ms. Unlike wall-clock time it hardly grows while
 * other processes have the processor, so it distinguishes a quadratic cost from a busy machine.
 */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
