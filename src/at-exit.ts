interface Process {
  on(event: "beforeExit", listener: () => void): void;
  off(event: "beforeExit", listener: () => void): void;
}

const deeds = new Set<() => void>();

const runAll = (): void => {
  for (const deed of [...deeds]) deed();
};

/**
 * Does that when this process has nothing else to do, where there is such a moment (Node, Bun, Deno):
 * not when it is told to exit or is killed. There is one listener for all, as long as there is any.
 *
 * @returns forgets it
 */
export function atExit(deed: () => void): () => void {
  if (deeds.size === 0) platform()?.on("beforeExit", runAll);
  deeds.add(deed);
  return () => {
    if (deeds.delete(deed) && deeds.size === 0) platform()?.off("beforeExit", runAll);
  };
}

/** Browsers have none. */
function platform(): Process | undefined {
  const { process } = globalThis as { process?: Partial<Process> };
  return typeof process?.on === "function" ? (process as Process) : undefined;
}
