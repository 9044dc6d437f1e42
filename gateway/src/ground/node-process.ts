/** The functions of Node's `process` that are used. A browser could not resolve an import of it. */
interface NodeProcess {
  getBuiltinModule?(name: string): unknown;
  emitWarning?(message: string, options: { readonly type: string; readonly code: string }): void;
}

/**
 * Runs the action with Node's `process`; returns undefined where the platform has none. The Edge runtime of
 * Next.js has one, but each of its functions throws: this returns undefined there too.
 */
export function onNode<T>(action: (process: NodeProcess) => T): T | undefined {
  const { process } = globalThis as { readonly process?: NodeProcess };
  try {
    return process && action(process);
  } catch {
    return undefined;
  }
}
