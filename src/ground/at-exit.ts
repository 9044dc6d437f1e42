interface Process {
  on(event: "beforeExit", listener: () => void): void;
  off(event: "beforeExit", listener: () => void): void;
}

const actions = new Set<() => void>();

const runAll = (): void => {
  for (const action of [...actions]) action();
};

/**
 * Calls a function when this process has nothing else to do (Node, Bun, Deno): not when the process
 * calls `exit()` or is killed. Uses one listener for all functions, and none while there are none.
 *
 * @returns a function that removes it again
 */
export function atExit(action: () => void): () => void {
  if (actions.size === 0) platform()?.on("beforeExit", runAll);
  actions.add(action);
  return () => {
    if (actions.delete(action) && actions.size === 0) platform()?.off("beforeExit", runAll);
  };
}

/** Undefined in browsers. */
function platform(): Process | undefined {
  const { process } = globalThis as { process?: Partial<Process> };
  return typeof process?.on === "function" ? (process as Process) : undefined;
}
