interface Process {
  on(event: "beforeExit", listener: () => void): void;
  off(event: "beforeExit", listener: () => void): void;
}

const deeds = new Set<() => void>();

const runAll = (): void => {
  for (const action of [...deeds]) action();
};

/**
 * Calls a function when this process has nothing else to do (Node, Bun, Deno): not when the process
 * calls `exit()` or is killed. Uses one listener for all functions, and none while there are none.
 *
 * @returns a function that removes it again
 */
export function atExit(action: () => void): () => void {
  if (deeds.size === 0) platform()?.on("beforeExit", runAll);
  deeds.add(action);
  return () => {
    if (deeds.delete(action) && deeds.size === 0) platform()?.off("beforeExit", runAll);
  };
}

/** Undefined in browsers. */
function platform(): Process | undefined {
  const { process } = globalThis as { process?: Partial<Process> };
  return typeof process?.on === "function" ? (process as Process) : undefined;
}
