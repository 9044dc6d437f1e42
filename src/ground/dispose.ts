/**
 * The symbols that `using` and `await using` look for. Where the platform lacks them (Safari, early
 * Node 20): the names that compilers and polyfills agreed on.
 */
export const dispose: typeof Symbol.dispose = wellKnown("dispose");
export const asyncDispose: typeof Symbol.asyncDispose = wellKnown("asyncDispose");

export function wellKnown<Name extends "dispose" | "asyncDispose">(
  name: Name,
  platform: Partial<SymbolConstructor> = Symbol,
): SymbolConstructor[Name] {
  return (platform[name] ?? Symbol.for(`Symbol.${name}`)) as SymbolConstructor[Name];
}
