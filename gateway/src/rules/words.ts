/** Normalizes a name for a lookup: case, spaces, "-" and "_" do not matter. */
export function fold(name: string): string {
  return name.toLowerCase().replace(/[\s_-]+/g, "");
}

/** Names that may be written in several ways. */
export interface Vocabulary {
  /** The canonical names. */
  readonly names: readonly string[];
  /** The names and their aliases, as documented. */
  readonly spellings: readonly string[];
  /** Returns the canonical name; undefined if it is unknown. */
  find(word: string): string | undefined;
}

export function vocabulary(
  entries: readonly (readonly [name: string, aliases?: readonly string[]])[],
): Vocabulary {
  const spelled = entries.flatMap(([name, aliases = []]) =>
    [name, ...aliases].map((word) => [word, name] as const),
  );
  const known = new Map(spelled.map(([word, name]) => [fold(word), name]));
  return {
    names: entries.map(([name]) => name),
    spellings: spelled.map(([word]) => word),
    find: (word) => known.get(fold(word)),
  };
}
