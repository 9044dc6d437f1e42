/**
 * The processor time of this process so far, ms. Unlike the time on the wall it hardly grows while other
 * processes have the processor, so it tells a quadratic cost from a busy machine.
 */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
