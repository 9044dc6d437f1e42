/** A result that is available at once or later. */
export type Maybe<T> = T | Promise<T>;

export function chain<T, R>(answer: Maybe<T>, go: (answer: T) => Maybe<R>): Maybe<R> {
  return answer instanceof Promise ? answer.then(go) : go(answer);
}

export function all<T>(answers: readonly Maybe<T>[]): Maybe<readonly T[]> {
  return answers.some((answer) => answer instanceof Promise)
    ? Promise.all(answers)
    : (answers as readonly T[]);
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as Partial<PromiseLike<unknown>> | null | undefined)?.then === "function";
}

/** Runs the action, and converts a failure to undefined. */
export function settled<T>(action: () => Maybe<T>): Maybe<T | undefined> {
  return orElse<T | undefined>(action, () => undefined);
}

/** Runs the action, and passes a failure on. */
export function orElse<T>(action: () => Maybe<T>, failed: (error: unknown) => Maybe<T>): Maybe<T> {
  try {
    const done = action();
    return done instanceof Promise ? done.catch(failed) : done;
  } catch (error) {
    return failed(error);
  }
}
