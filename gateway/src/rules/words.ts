/** Normalizes a name for a comparison with a mistake: case, spaces, "-" and "_" do not matter. */
function loose(name: string): string {
  return name.toLowerCase().replace(/[\s_-]+/g, "");
}

/**
 * Returns what a wrong word can mean: the spelling that differs only in case or spaces, or the only name of which it is
 * the beginning ("min") or the plural; undefined if there is none.
 */
export function nearest(
  word: string,
  { names, spellings }: Pick<Vocabulary, "names" | "spellings">,
): string | undefined {
  const wanted = loose(word);
  const beginning = wanted.replace(/(?<=..)s$/, "");
  const [name, more] = names.filter(
    (each) => beginning !== "" && loose(each).startsWith(beginning),
  );
  return (
    spellings.find((each) => loose(each) === wanted) ?? (more === undefined ? name : undefined)
  );
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
  const known = new Map(spelled);
  return {
    names,
    spellings: spelled.map(([word]) => word),
    find: (word) => known.get(word),
  };
}
