/** Returns a function like `Math.random`, whose numbers are the same each time. */
export function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Runs something with the same random numbers each time. */
export async function seeded<T>(seed: number, run: () => T | Promise<T>): Promise<T> {
  const { random } = Math;
  Math.random = randomFrom(seed);
  try {
    return await run();
  } finally {
    Math.random = random;
  }
}
