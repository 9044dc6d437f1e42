/** A name as it is looked up: case, spaces, "-" and "_" do not matter. */
export function fold(name: string): string {
  return name.toLowerCase().replace(/[\s_-]+/g, "");
}

/** What the names of each, and its aliases, stand for. */
export function vocabulary(
  entries: Iterable<readonly [name: string, aliases?: readonly string[]]>,
): ReadonlyMap<string, string> {
  const known = new Map<string, string>();
  for (const [name, aliases = []] of entries) {
    for (const word of [name, ...aliases]) known.set(fold(word), name);
  }
  return known;
}
