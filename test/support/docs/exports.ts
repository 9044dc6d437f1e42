import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** What an entry of the package exports. */
export interface Export {
  readonly name: string;
  /** The members of an interface or class that its own declaration lists; none for other kinds. */
  readonly members: readonly string[];
}

/** The source of each entry in package.json `exports`, by the name that users import. */
export function entries(): ReadonlyMap<string, string> {
  const { name, exports } = JSON.parse(readFileSync("package.json", "utf8"));
  const sources = new Map<string, string>();
  for (const [path, target] of Object.entries<{ import?: { default: string } }>(exports)) {
    const file = target.import?.default.replace("./dist/", "src/").replace(/\.js$/, ".ts");
    if (file !== undefined) sources.set(join(name, path), file);
  }
  return sources;
}

/** Lists the exports of a source file. Throws an Error on a form of export that it does not know. */
export function exportsOf(file: string): Export[] {
  const text = read(file);
  const found: Export[] = [];
  for (const [statement] of text.matchAll(/^export [^;{]*(?:\{[^}]*\}(?: from "[^"]+")?)?/gm)) {
    const list = /^export (?:type )?\{([^}]*)\} from "([^"]+)"$/.exec(statement);
    const own = /^export (?:class|interface|function|const|type) (\w+)/.exec(statement)?.[1];
    if (list) found.push(...named(list[1] ?? "", join(dirname(file), list[2] ?? "")));
    else if (own && found.every(({ name }) => name !== own))
      found.push({ name: own, members: membersOf(text, own) });
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
      return { name, members: membersOf(text, declared) };
    });
}

/** A member of a declaration starts a line, two spaces in. */
const MEMBER =
  /^ {2}(?:(?:readonly|static|override|async|get|set) )*([a-z]\w*)\??(?:<[^>]*>)?[(:]/gim;

function membersOf(text: string, name: string): string[] {
  const start = new RegExp(`^export (?:interface|class) ${name}\\b[^{]*\\{$`, "m").exec(
    text,
  )?.index;
  if (start === undefined) return [];
  const body = text.slice(start, text.indexOf("\n}", start));
  const names = [...body.matchAll(MEMBER)].map(([, member = ""]) => member);
  return [...new Set(names)].filter((member) => member !== "constructor");
}

/** Source without comments, whose examples look like code. */
function read(file: string): string {
  return readFileSync(file, "utf8").replaceAll(/\/\*\*.*?\*\//gs, "");
}
