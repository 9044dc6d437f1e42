// Inlines the functions of a twin where a script calls them, because creating a Lua function costs a server as much as
// running it. Only the Lua of the twins is understood: one statement a line; functions that read `policy` and change
// only `state`; calls of them in statements, `return`s and the conditions of `if`.

const EXTREME = /\bmath\.(min|max)\(/;

interface Fn {
  readonly params: readonly string[];
  readonly body: readonly string[];
}

/** The code of a twin outside of the table that it registers. */
export interface Twin {
  readonly functions: ReadonlyMap<string, Fn>;
  /** Other local values, as text. */
  readonly values: ReadonlyMap<string, string>;
}

/** Reads a twin from lines without comments and indentation. */
export function readTwin(lines: readonly string[]): Twin {
  const functions = new Map<string, Fn>();
  const values = new Map<string, string>();
  for (let i = 0; i < lines.length; i++) {
    const line = String(lines[i]);
    const [, name, params] = /^local function (\w+)\((.*)\)$/.exec(line) ?? [];
    const [, alias, value] = /^local (\w+) = (\w+)$/.exec(line) ?? [];
    if (name !== undefined && params !== undefined) {
      const end = endOf(lines, i);
      functions.set(name, { params: params.split(", "), body: lines.slice(i + 1, end) });
      i = end;
    } else if (alias !== undefined && value !== undefined) {
      const same = functions.get(value);
      if (same === undefined) values.set(alias, value);
      else functions.set(alias, same);
    }
  }
  return { functions, values };
}

/** Returns the line on which the block that begins on line `from` ends. */
export function endOf(lines: readonly string[], from: number): number {
  let depth = 0;
  for (let i = from; i < lines.length; i++) {
    const line = String(lines[i]).replace(/"[^"]*"/g, "");
    depth += [...line.matchAll(/\b(?:function|then|do|repeat)\b/g)].length;
    depth -= [...line.matchAll(/\b(?:end|until|elseif)\b/g)].length;
    if (depth === 0) return i;
  }
  throw new Error(`no end: ${lines[from]}`);
}

/** Spreads each `if` over several lines, and joins each table into one line. */
export function normalized(lines: readonly string[]): string[] {
  return lines
    .join("\n")
    .replace(/\{\n([^}]*)\n\}/g, (_, fields: string) => `{ ${fields.replaceAll("\n", " ")} }`)
    .split("\n")
    .flatMap((line) => {
      const [, condition, statement] = /^if (.*) then (.*) end$/.exec(line) ?? [];
      return condition === undefined ? [line] : [`if ${condition} then`, `${statement}`, "end"];
    });
}

/** Returns the names of the twin's functions that the line calls. */
function callsIn(line: string, twin: Twin): string[] {
  return [...line.matchAll(/(?<![.\w])(\w+)\(/g)].flatMap(([, name = ""]) =>
    twin.functions.has(name) && !line.startsWith("local function") ? [name] : [],
  );
}

/** Returns the function as the twin defines it, after the functions that it calls and the tables that they read. */
export function definitionOf(name: string, twin: Twin): string[] {
  const known = new Set<string>();
  function define(each: string): string[] {
    if (known.has(each)) return [];
    known.add(each);
    const { params, body } = twin.functions.get(each) as Fn;
    const called = body.flatMap((line) => callsIn(line, twin)).flatMap(define);
    return [...called, `local function ${each}(${params.join(", ")})`, ...body, "end"];
  }
  return ["local policy, state = TABLES", ...define(name)];
}

/**
 * Returns the script with each call of a twin's function replaced by the function's body. A function with a loop is
 * rarely called: a mark with its name, `--> name`, precedes the call, and has to be replaced by its definition.
 */
export function inlined(script: readonly string[], twin: Twin): string[] {
  const hasLoop = ({ body }: Fn): boolean => body.some((line) => /\b(?:while|for)\b/.test(line));

  const fn = (name: string): Fn => twin.functions.get(name) as Fn;

  /** @param used the number of temporaries in use. Equal calls get equal names, so the text compresses well */
  function expand(line: string, used: number): string[] {
    if (EXTREME.test(line)) return compared(line, used);
    const called = callsIn(line, twin);
    const name = called.find((each) => !hasLoop(fn(each)));
    if (name === undefined) return [...called.map((each) => `--> ${each}`), line];
    if (/^(?:elseif|while|until|for)\b/.test(line)) throw new Error(`cannot inline: ${line}`);
    const at = line.search(new RegExp(`(?<![.\\w])${name}\\(`));
    const open = at + name.length;
    const close = closing(line, open);
    const call = line.slice(at, close + 1);
    const args = splitArguments(line.slice(open + 1, close));
    if (line === call) return block(name, args, undefined, used);
    const target = `t${used + 1}`;
    const rest = `${line.slice(0, at)}${target}${line.slice(close + 1)}`;
    return [`local ${target}`, ...block(name, args, target, used + 1), ...expand(rest, used + 1)];
  }

  /** `math.min` and `math.max` of two values as comparisons: a call costs more than the rest of most lines. */
  function compared(line: string, used: number): string[] {
    const [start = "", verb] = EXTREME.exec(line) ?? [];
    const at = line.indexOf(start);
    if (/^(?:elseif|while|until|for)\b/.test(line)) throw new Error(`cannot inline: ${line}`);
    const close = closing(line, at + start.length - 1);
    const bound: string[] = [];
    const [one = "", other = ""] = splitArguments(line.slice(at + start.length, close)).map(
      (arg) => {
        if (/^[\w.]+(?:e[+-]?\d+)?$/.test(arg)) return arg;
        const temporary = `t${used + bound.length + 1}`;
        bound.push(`local ${temporary} = ${arg}`);
        return temporary;
      },
    );
    const value = `(${other} ${verb === "min" ? "<" : ">"} ${one} and ${other} or ${one})`;
    const rest = `${line.slice(0, at)}${value}${line.slice(close + 1)}`;
    const inUse = used + bound.length;
    return [...bound.flatMap((each) => expand(each, inUse)), ...expand(rest, inUse)];
  }

  function block(
    name: string,
    args: readonly string[],
    target: string | undefined,
    used: number,
  ): string[] {
    const { params, body } = fn(name);
    const bound = params.flatMap((param, i) =>
      args[i] === param || args[i] === undefined || param === "_" ? [] : [[param, args[i]]],
    );
    const binding = `local ${bound.map(([param]) => param).join(", ")} = ${bound.map(([, arg]) => arg).join(", ")}`;
    const lines = normalized(body);
    const statements = lines.flatMap((line, i) => {
      if (!/^return\b/.test(line)) return [line];
      const leave = i === lines.length - 1 ? [] : ["break"];
      const value = line.slice("return ".length);
      if (value.startsWith("{")) return [fieldsSet(value), ...leave];
      return target === undefined || value === "" ? leave : [`${target} = ${value}`, ...leave];
    });
    return [
      "repeat",
      ...(bound.length === 0 ? [] : expand(binding, used)),
      ...statements.flatMap((each) => expand(each, used)),
      "until true",
    ];
  }

  const text = normalized(script).flatMap((line) => expand(line, 0));
  return text.map((line) =>
    line.replace(/(?<![.\w])\w+\b/g, (word) => twin.values.get(word) ?? word),
  );
}

/** Returns the position at which the parenthesis that opens at `open` is closed. */
function closing(line: string, open: number): number {
  let depth = 0;
  for (let i = open; i < line.length; i++) {
    if (line[i] === "(") depth += 1;
    if (line[i] === ")") depth -= 1;
    if (depth === 0) return i;
  }
  throw new Error(`not closed: ${line}`);
}

function splitArguments(text: string): string[] {
  const args: string[] = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i <= text.length; i++) {
    if ("({".includes(text[i] ?? " ")) depth += 1;
    if (")}".includes(text[i] ?? " ")) depth -= 1;
    if ((text[i] === "," && depth === 0) || i === text.length) {
      args.push(text.slice(from, i).trim());
      from = i + 1;
    }
  }
  return args;
}

/** Turns `{ a = 1, b = 2 }` into an assignment to the policy's fields. */
function fieldsSet(table: string): string {
  const fields = fieldsOf(table);
  const names = fields.map(([name]) => `policy.${name}`);
  return `${names.join(", ")} = ${fields.map(([, value]) => value).join(", ")}`;
}

function fieldsOf(table: string): [name: string, value: string][] {
  return splitArguments(table.slice(1, -1)).flatMap((field) => {
    const [, name, value] = /^(\w+) = (.*)$/.exec(field) ?? [];
    return name === undefined || value === undefined ? [] : [[name, value]];
  });
}

/**
 * Returns the script with a local variable for each field of `policy` and `state` instead of tables. The words STATE and
 * POLICY in the script become the lists of these variables, and TABLES becomes the two tables made of them.
 *
 * @param fields names of the state's fields
 */
export function withoutTables(
  script: readonly string[],
  twin: Twin,
  fields: readonly string[],
): string[] {
  const read = normalized((twin.functions.get("read") as Fn).body);
  const tables = read.flatMap((line) => (line.startsWith("return {") ? [line.slice(7)] : []));
  const ofPolicy = [...new Set(tables.flatMap(fieldsOf).map(([name]) => name))];
  const all = (of: string, names: readonly string[]) =>
    names.map((name) => `${of}_${name}`).join(", ");
  const table = (of: string, names: readonly string[]) =>
    `{ ${names.map((name) => `${name} = ${of}_${name}`).join(", ")} }`;
  let inDefinition = 0;
  return script.map((line) => {
    // functions keep their tables
    if (line.startsWith("local function ")) inDefinition = 1;
    else if (inDefinition > 0) {
      const plain = line.replace(/"[^"]*"/g, "");
      inDefinition += [...plain.matchAll(/\b(?:then|do|repeat)\b/g)].length;
      inDefinition -= [...plain.matchAll(/\b(?:end|until|elseif)\b/g)].length;
    }
    if (inDefinition > 0 || line === "end") return line;
    return line
      .replace("TABLES", () => `${table("policy", ofPolicy)}, ${table("state", fields)}`)
      .replace(/\bPOLICY\b/, () => all("policy", ofPolicy))
      .replace(/\bSTATE\b/, () => all("state", fields))
      .replace(/\bpolicy\.(\w+)/g, (_, name: string) =>
        ofPolicy.includes(name) ? `policy_${name}` : "nil",
      )
      .replace(/\bstate\.(\w+)/g, "state_$1")
      .replace(/\bnumbers\[(\d)\]/g, "number_$1");
  });
}
