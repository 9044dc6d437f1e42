/** The functions of Node's `process` that are used. A browser could not resolve an import of it. */
interface NodeProcess {
  getBuiltinModule?(name: string): unknown;
  emitWarning?(message: string, options?: WarningOptions): void;
}

interface WarningOptions {
  readonly type: string;
  readonly code: string;
}

/** Returns a module of Node; undefined where the platform has none. */
export function builtinModule<T>(name: string): T | undefined {
  return onNode((process) => process.getBuiltinModule?.(name)) as T | undefined;
}

/** Emits a process warning. Does nothing where the platform has none. */
export function emitWarning(message: string, options?: WarningOptions): void {
  onNode((process) => process.emitWarning?.(message, options));
}

/** The Edge runtime of Next.js has a `process`, but each of its functions throws when it is called. */
function onNode<T>(action: (process: NodeProcess) => T): T | undefined {
  const { process } = globalThis as { process?: NodeProcess };
  try {
    return process && action(process);
  } catch {
    return undefined;
  }
}
