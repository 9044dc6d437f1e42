/** A name as it is looked up: case, spaces, "-" and "_" do not matter. */
export function fold(name: string): string {
  return name.toLowerCase().replace(/[\s_-]+/g, "");
}

/** Names that may be written in several ways. */
export interface Vocabulary {
  /** As they come out. */
  readonly names: readonly string[];
  /** These and their aliases, as they are documented. */
  readonly spellings: readonly string[];
  /** What stands for it, if it is known. */
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
