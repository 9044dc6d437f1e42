import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** What an entry of the package exports. */
export interface Export {
  readonly name: string;
  /** Its declaration, as file and name: the same for all entries that export it. */
  readonly declaredAs: string;
  /** The members of an interface or class that its own declaration lists; none for other kinds. */
  readonly members: readonly string[];
  /** Those of its members, and the export itself, that have no doc comment, here or in a base. */
  readonly undocumented: readonly string[];
}

/** The source of each entry of a package, by the name that users import. */
export function entries(folder: string): ReadonlyMap<string, string> {
  const { name, exports } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const sources = new Map<string, string>();
  for (const [path, target] of Object.entries<object>(exports)) {
    const [file] = /(?<="\.\/dist\/)[^"]+(?=\.js")/.exec(JSON.stringify(target)) ?? [];
    if (file !== undefined) sources.set(join(name, path), join(folder, "src", `${file}.ts`));
  }
  return sources;
}

/**
 * Lists the exports of a source file. Throws an Error on a form of export that it does not know.
 *
 * @param others files of which `export *` is left out
 */
export function exportsOf(file: string, others: readonly string[] = []): Export[] {
  const text = read(file);
  const found: Export[] = [];
  for (const [, from = ""] of text.matchAll(/^export \* from "([^"]+)";$/gm)) {
    const source = join(dirname(file), from);
    if (!others.includes(source)) found.push(...exportsOf(source, others));
  }
  for (const [statement] of text.matchAll(
    /^export (?!\*)[^;{]*(?:\{[^}]*\}(?: from "[^"]+")?)?/gm,
  )) {
    const list = /^export (?:type )?\{([^}]*)\} from "([^"]+)"$/.exec(statement);
    const own = /^export (?:class|interface|function|const|type) (\w+)/.exec(statement)?.[1];
    if (list) found.push(...named(list[1] ?? "", join(dirname(file), list[2] ?? "")));
    else if (own && found.every(({ name }) => name !== own)) found.push(exportOf(text, file, own));
    else if (own === undefined) throw new Error(`${file}: unknown form of export: ${statement}`);
  }
  return found;
}

function named(list: string, from: string): Export[] {
  const text = read(from);
  return list
    .split(",")
    .map((item) => item.trim().replace(/^type /, ""))
    .filter((item) => item !== "")
    .map((item) => {
      const [declared = "", name = declared] = item.split(" as ");
      return { ...exportOf(text, from, declared), name };
    });
}

function exportOf(text: string, file: string, name: string): Export {
  const declaration = new RegExp(
    `^(.*)\n(?:export )?(?:declare )?(?:abstract )?(?:class|interface|function|const|type) ${name}\\b`,
    "m",
  ).exec(text);
  const isBare = declaration !== null && declaration[1] !== COMMENT;
  const members = membersOf(text, name);
  const inherited = new Set(
    basesOf(text, name).flatMap((base) => membersOf(text, base).map((each) => each.name)),
  );
  const bare = members
    .filter((each) => !each.isDocumented && !inherited.has(each.name))
    .map((each) => each.name);
  return {
    name,
    declaredAs: `${file} ${name}`,
    members: members.map((each) => each.name),
    undocumented: [...(isBare ? [name] : []), ...bare.map((each) => `${name}.${each}`)],
  };
}

/** A member of a declaration starts a line, two spaces in. */
const MEMBER =
  /^ {2}(?:(?:readonly|static|override|async|get|set) )*([a-z]\w*)\??(?:<[^>]*>)?[(:]/gim;

/** The interfaces of the same file that it extends: editors show their comments where it has none. */
function basesOf(text: string, name: string): string[] {
  const [, bases = ""] =
    new RegExp(`^export interface ${name}\\b[^{]*? extends ([^{]*)\\{$`, "m").exec(text) ?? [];
  return [...bases.matchAll(/\w+/g)].map(([base]) => base);
}

interface Member {
  readonly name: string;
  readonly isDocumented: boolean;
}

/** The members in order; of several declarations of one member the first counts. */
function membersOf(text: string, name: string): Member[] {
  const start = new RegExp(`^export (?:interface|class) ${name}\\b[^{]*\\{$`, "m").exec(
    text,
  )?.index;
  if (start === undefined) return [];
  const body = text.slice(start, text.indexOf("\n}", start));
  const members = new Map<string, Member>();
  for (const { 1: member = "", index } of body.matchAll(MEMBER)) {
    const isDocumented = body.slice(0, index).trimEnd().endsWith(COMMENT);
    if (member !== "constructor" && !members.has(member)) {
      members.set(member, { name: member, isDocumented });
    }
  }
  return [...members.values()];
}

/** What stands for a doc comment in the text: examples in comments look like code. */
const COMMENT = "/***/";

function read(file: string): string {
  return readFileSync(file, "utf8")
    .replaceAll(/\/\*\*.*?\*\//gs, COMMENT)
    .replaceAll(/^\/\/ biome-ignore .*\n/gm, "");
}
