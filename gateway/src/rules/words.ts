/** Normalizes a name for a lookup: case, spaces, "-" and "_" do not matter. */
export function fold(name: string): string {
  return name.toLowerCase().replace(/[\s_-]+/g, "");
}

/** Returns the only name of which a word is the beginning ("min"), or the plural; undefined if there is none. */
export function nearest<Name extends string>(
  word: string,
  names: readonly Name[],
): Name | undefined {
  const beginning = fold(word).replace(/(?<=..)s$/, "");
  const [name, more] = names.filter((each) => beginning !== "" && fold(each).startsWith(beginning));
  return more === undefined ? name : undefined;
}

/** Names that may be written in several ways. */
export interface Vocabulary<Name extends string = string> {
  /** The canonical names. */
  readonly names: readonly Name[];
  /** The names and their aliases, as documented. */
  readonly spellings: readonly string[];
  /** Returns the canonical name; undefined if it is unknown. */
  find(word: string): Name | undefined;
}

export function vocabulary<Name extends string>(
  names: readonly Name[],
  aliasesOf: (name: Name) => readonly string[] = () => [],
): Vocabulary<Name> {
  const spelled = names.flatMap((name) =>
    [name, ...aliasesOf(name)].map((word) => [word, name] as const),
  );
  const known = new Map(spelled.map(([word, name]) => [fold(word), name]));
  return {
    names,
    spellings: spelled.map(([word]) => word),
    find: (word) => known.get(fold(word)),
  };
}
