/** A value now, or later: quick verbs of a limiter in this process answer at once. */
export type MaybePromise<T> = T | Promise<T>;

/** Goes on with the answer: at once, unless it is a promise. */
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
