// Removes declarations that no entry of the package reaches, which are most declarations of internal parts, and doc
// comments that no editor shows: those of files, and of types that a public one only uses. It reads the output of tsc,
// in which each statement begins in the first column and follows its doc comment.

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** A name in this file and the name that it stands for: in `file`, or in this file if `file` is undefined. */
interface Link {
  readonly name: string;
  readonly file: string | undefined;
  readonly there: string;
  /** "type " if the name is that of a type only: a class may be exported as its type. */
  readonly type: string;
}

/** A statement. An import, or an export without a declaration, has `links`. */
interface Statement {
  readonly text: string;
  readonly name?: string | undefined;
  readonly links?: readonly Link[] | undefined;
}

const START = /^(?:\/\*\*|(?:export|import|declare|type|interface|class|abstract)\b)/;
const DECLARATION =
  /^(?:export )?(?:declare )?(?:abstract )?(?:class|interface|type|function|const|let|enum) (\w+)/;
const BLOCK = /^(?:export )?(?:declare )?(?:abstract )?(?:class|interface|enum|global|namespace)\b/;
const LIST = /^(?:import|export) (?:type )?\{([^}]*)\}(?: from "([^"]+)")?;/;
const ALL = /^export \* from "(\.[^"]+)";/;
const NAMES = /^((?:import|export)(?: type)?) \{[^}]*\}/m;
/** A doc comment with the line break behind it. */
const COMMENT = /^[ \t]*\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n?/gm;
/** A doc comment before another one: it belongs to the file. */
const OF_FILE = /^\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n(?=\/\*\*)/gm;
const ARGUMENTS = /<[^<>]*>/g;
const INDENT = /^(?: {4})+/gm;
const IMPORT_TYPE = /import\("(\.[^"]+)"\)\.(\w+)/g;

/** Prunes the files. Files that no entry reaches are removed. @param entries the declaration files whose exports stay */
export function pruneTypes(files: readonly string[], entries: readonly string[]): void {
  const modules = new Map(files.map((file) => [file, read(file)]));
  const own = new Map([...modules].map(([file, all]) => [file, new Set(all.flatMap(namesOf))]));
  const kept = new Map(files.map((file) => [file, new Set<string>()]));
  const shown = new Map(files.map((file) => [file, new Set<string>()]));

  function keep(file: string, name: string): void {
    const names = kept.get(file);
    if (names === undefined || names.has(name)) return;
    names.add(name);
    for (const statement of modules.get(file) ?? []) {
      // a statement without a name, such as `declare global`, stays in the file
      const isKept = statement.links === undefined && (statement.name ?? name) === name;
      if (isKept) keepUsed(file, statement.text);
      const link = statement.links?.find((each) => each.name === name);
      if (link !== undefined) keep(link.file ?? file, link.there);
    }
  }

  function keepUsed(file: string, text: string): void {
    const code = withoutComments(text);
    for (const [word] of code.matchAll(/[A-Za-z_]\w*/g)) {
      if (own.get(file)?.has(word)) keep(file, word);
    }
    for (const [, path = "", name = ""] of code.matchAll(IMPORT_TYPE)) {
      keep(declarationAt(file, path), name);
    }
  }

  /** Keeps the comments of a public declaration, of what it inherits, and of the type of a constant. */
  function show(file: string, name: string): void {
    const names = shown.get(file);
    if (names === undefined || names.has(name)) return;
    names.add(name);
    for (const statement of modules.get(file) ?? []) {
      const link = statement.links?.find((each) => each.name === name);
      if (link !== undefined) show(link.file ?? file, link.there);
      if (statement.name !== name) continue;
      for (const [word] of headOf(statement.text).matchAll(/[A-Za-z_]\w*/g)) {
        if (own.get(file)?.has(word)) show(file, word);
      }
    }
  }

  function publish(file: string): void {
    for (const statement of modules.get(file) ?? []) {
      const code = withoutComments(statement.text).trim();
      if (!/^export\b/.test(code)) continue;
      const [, all] = ALL.exec(code) ?? [];
      if (all !== undefined) publish(declarationAt(file, all));
      for (const name of namesOf(statement)) {
        keep(file, name);
        show(file, name);
      }
    }
  }

  for (const entry of entries) publish(entry);
  for (const [file, statements] of modules) {
    write(file, statements, kept.get(file) ?? new Set(), shown.get(file) ?? new Set());
  }
}

/** Returns the code of a statement; of a class or an interface only what precedes its members. */
function headOf(text: string): string {
  const code = withoutComments(text).trim();
  return BLOCK.test(code) ? String(code.split("{")[0]).replace(ARGUMENTS, "") : code;
}

function namesOf({ name, links = [] }: Statement): string[] {
  return [...(name === undefined ? [] : [name]), ...links.map((link) => link.name)];
}

function read(file: string): readonly Statement[] {
  const texts: string[] = [""];
  for (const line of readFileSync(file, "utf8").split("\n")) {
    const last = String(texts.at(-1));
    if (START.test(line) && isComplete(last)) texts.push(line);
    else texts[texts.length - 1] = last === "" ? line : `${last}\n${line}`;
  }
  return texts.map((text) => statementOf(file, text));
}

function isComplete(text: string): boolean {
  const code = withoutComments(text).trim();
  return code.endsWith(BLOCK.test(code) ? "}" : ";");
}

function statementOf(file: string, text: string): Statement {
  const code = withoutComments(text).trim();
  const [, name] = DECLARATION.exec(code) ?? [];
  const [, list, path] = LIST.exec(code) ?? [];
  if (list === undefined) return { text, name };
  const from = path?.startsWith(".") ? declarationAt(file, path) : path;
  const links = list.split(",").flatMap((item) => {
    const [, type = "", there = "", as = there] =
      /^(type )?(\S+)(?: as (\S+))?$/.exec(item.trim()) ?? [];
    return there === "" ? [] : [{ name: as, file: from, there, type }];
  });
  return { text, links };
}

function declarationAt(file: string, path: string): string {
  return join(dirname(file), path).replace(/\.[jt]s$/, ".d.ts");
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, "");
}

function write(
  file: string,
  statements: readonly Statement[],
  names: ReadonlySet<string>,
  shown: ReadonlySet<string>,
): void {
  const texts = statements.flatMap(({ text: commented, name, links }) => {
    const isShown = name !== undefined && shown.has(name);
    const text = isShown ? commented.replace(OF_FILE, "") : commented.replace(COMMENT, "");
    if (name !== undefined) return names.has(name) ? [text] : [];
    if (links === undefined || links.length === 0) return [text];
    const left = links.filter((link) => names.has(link.name));
    if (left.length === 0) return [];
    const list = left.map(
      ({ name: own, there, type }) => type + (own === there ? own : `${there} as ${own}`),
    );
    return [text.replace(NAMES, `$1 { ${list.join(", ")} }`)];
  });
  const text = `${texts.join("\n")}\n`;
  if (names.size === 0) rmSync(file);
  else
    writeFileSync(
      file,
      text.replace(INDENT, (spaces) => "\t".repeat(spaces.length / 4)),
    );
}
