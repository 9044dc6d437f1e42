/**
 * Returns how many iterations over a Map begin while the action runs. Each begins with a search through all
 * entries that were deleted in front of the first one: where the first entry is deleted again and again, an
 * iteration for each makes the cost quadratic.
 */
export async function mapIterations(action: () => unknown): Promise<number> {
  const names = [Symbol.iterator, "entries", "keys", "values", "forEach"] as const;
  const originals = names.map((name) => [name, Map.prototype[name]] as const);
  let begun = 0;
  for (const [name, original] of originals) {
    Object.defineProperty(Map.prototype, name, {
      value(this: unknown, ...args: unknown[]) {
        begun += 1;
        return Reflect.apply(original, this, args);
      },
      configurable: true,
      writable: true,
    });
  }
  try {
    await action();
  } finally {
    for (const [name, value] of originals) {
      Object.defineProperty(Map.prototype, name, { value, configurable: true, writable: true });
    }
  }
  return begun;
}
