/** A value now, or later: quick verbs of a limiter in this process answer at once. */
export type MaybePromise<T> = T | Promise<T>;

/** Goes on with the answer: at once, unless it is a promise. */
export function chain<T, R>(
  answer: MaybePromise<T>,
  go: (answer: T) => MaybePromise<R>,
): MaybePromise<R> {
  return answer instanceof Promise ? answer.then(go) : go(answer);
}

/** All answers, in their order: at once, unless one is a promise. */
export function all<T>(answers: readonly MaybePromise<T>[]): MaybePromise<readonly T[]> {
  return answers.some((answer) => answer instanceof Promise)
    ? Promise.all(answers)
    : (answers as readonly T[]);
}
