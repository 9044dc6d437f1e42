/** Methods of objects that were made elsewhere, and may be anything. */

/** Whether an object has all these methods. */
export function has(object: unknown, ...methods: readonly string[]): boolean {
  return methods.every(
    (method) => typeof (Object(object) as Record<string, unknown>)[method] === "function",
  );
}

/** Turns an exception into a rejection: some clients throw where others reject. */
export async function promised<Result>(callback: () => Result): Promise<Awaited<Result>> {
  return await callback();
}
