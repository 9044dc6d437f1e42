/**
 * A program may load several copies of this package: its ES modules and its CommonJS build, or two
 * versions. Copies of one version work together as one: they find each other's limiters by these
 * symbols instead of `instanceof`, and keep in one place what must exist once in a process. Other
 * versions share nothing, since they may have changed both.
 */

/** The version in package.json. */
export const VERSION = "0.1.0";

/** Returns the symbol of that name: the same in all copies of this version. */
export function symbolOf(name: string): symbol {
  return Symbol.for(`smooth-limiter@${VERSION}/${name}`);
}

/** Returns the value of that name: the one that the first copy created. */
export function oncePerProcess<T>(name: string, create: () => T): T {
  const shared = globalThis as unknown as Record<symbol, T | undefined>;
  const key = symbolOf(name);
  const known = shared[key];
  if (known !== undefined) return known;
  const created = create();
  Object.defineProperty(globalThis, key, { value: created });
  return created;
}
