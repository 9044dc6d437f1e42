/** A result that is available at once or later. */
export type MaybePromise<T> = T | Promise<T>;

export function chain<T, R>(
  answer: MaybePromise<T>,
  go: (answer: T) => MaybePromise<R>,
): MaybePromise<R> {
  return answer instanceof Promise ? answer.then(go) : go(answer);
}

export function all<T>(answers: readonly MaybePromise<T>[]): MaybePromise<readonly T[]> {
  return answers.some((answer) => answer instanceof Promise)
    ? Promise.all(answers)
    : (answers as readonly T[]);
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as Partial<PromiseLike<unknown>> | null | undefined)?.then === "function";
}

/** Runs the action, and converts a failure to undefined. */
export function ignoreFailure<T>(action: () => MaybePromise<T>): MaybePromise<T | undefined> {
  return orElse<T | undefined>(action, () => undefined);
}

/** Runs the action, and passes a failure on. */
export function orElse<T>(
  action: () => MaybePromise<T>,
  failed: (error: unknown) => MaybePromise<T>,
): MaybePromise<T> {
  try {
    const done = action();
    return done instanceof Promise ? done.catch(failed) : done;
  } catch (error) {
    return failed(error);
  }
}
