/** A result that is available at once or later. */
export type MaybePromise<T> = T | Promise<T>;

export function chain<T, R>(
  answer: MaybePromise<T>,
  go: (answer: T) => MaybePromise<R>,
): MaybePromise<R> {
  return answer instanceof Promise ? answer.then(go) : go(answer);
}

/**
 * Asks each in turn, and returns all answers, in their order: at once, unless one is a promise. If one throws beside a
 * promise, its error is a rejection too: that of the promise would be left alone otherwise.
 */
export function all<A, T>(
  these: readonly A[],
  ask: (each: A, i: number) => MaybePromise<T>,
): MaybePromise<readonly T[]> {
  const answers: MaybePromise<T>[] = [];
  let isLater = false;
  try {
    for (const [i, each] of these.entries()) {
      const answer = ask(each, i);
      isLater ||= answer instanceof Promise;
      answers.push(answer);
    }
  } catch (error) {
    if (!isLater) throw error;
    answers.push(Promise.reject(error));
  }
  return isLater ? Promise.all(answers) : (answers as readonly T[]);
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
