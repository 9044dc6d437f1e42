// Builds packages of this repository: build.ts <folder>… makes the dist/ of each folder from the "exports" and the "bin"
// of its package.json.
//
//   dist/**/*.js        the ES modules, one for each source: bundlers leave out what is not used, and a stack trace names
//                       the file and the function without a source map
//   dist/cjs/**/*.js    CommonJS: one file for each entry, and one for code that several entries share. Node loads
//                       these for `import`, too: few files load in a third of the time, and there is one copy
//   dist/cjs/**/*.map   for stack traces: the line of src that code is from (src itself would double the package)
//   dist/lua/*.cjs      the Lua of both builds: one file for each constant of lua.gen.ts
//   dist/cjs/**/*.d.ts  the types of both builds, and dist/**/*.d.ts, which re-export them: a class has the same type in
//                       both. They are CommonJS, because an ES module may import types of CommonJS but not the reverse
//
// A package without "exports" is a program, which nobody imports: it has only ES modules.
//
// Why rolldown itself: tsdown needs a newer Node than contributors do, and has no option for types that exist once.

import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, isAbsolute, join, relative, resolve } from "node:path";
import type { SourceMapMappings, SourceMapSegment } from "@jridgewell/sourcemap-codec";
import { decode, encode } from "@jridgewell/sourcemap-codec";
import type { OutputOptions, Plugin, RolldownOptions, RolldownOutput } from "rolldown";
import { rolldown } from "rolldown";
import { dts } from "rolldown-plugin-dts";

/** Packages without CommonJS. A CommonJS declaration may import only their types, with an explicit `resolution-mode`. */
const IMPORT_OF_ES_ONLY = /^import (\w+), \{(.+ from "p-queue");$/gm;

/** A declaration with its doc comment; both begin in the first column. */
const DECLARATION =
  /^(?:\/\*\*(?:(?!\*\/).)*\*\/\n)?(?:declare |abstract )*(?:class|interface|type|function|const|let) (\w+).*?\n(?=\/|[a-z]|$(?!\n))/gms;
const COMMENT = /^ *\/\*\*(?:(?!\*\/).)*\*\/\n/gms;

/** A generated script, or an algorithm's twin, which has a script. */
const CONSTANT = /^export const (\w+)(?:: LuaTwin)? = (".*?"|\{.*?^\});$/gms;
const SCRIPT_OF_TWIN = /(?<=^ {2}lua: )\w+/m;

/** How a shared chunk exports, so that a binding can change; none does here, and values are shorter and faster. */
const GETTER =
  /Object\.defineProperty\(exports,"(\w+)",\{enumerable:!0,get:function\(\)\{return ([\w$.]+)\}\}\)/g;

/** What stands in both builds for the path of a file in dist. */
const SHARED = /\bdist:(lua\/\w+\.cjs)/g;

const INPUT: RolldownOptions = {
  external: (id) => !id.startsWith(".") && !isAbsolute(id),
  platform: "neutral",
  tsconfig: false,
  transform: { target: "es2022" },
  experimental: { attachDebugInfo: "none" },
};

const OUTPUT: OutputOptions = {
  chunkFileNames: "shared-[hash].js",
  hashCharacters: "hex",
  exports: "named",
  esModule: true,
  generatedCode: { symbols: false },
  sourcemap: true,
  minify: {
    compress: true,
    // names of classes and functions stay, so that stack traces can be read
    mangle: { toplevel: true, keepNames: { class: true, function: true } },
    codegen: true,
  },
};

/** Moves generated constants to files that both builds load, so that they exist once, and a bundle has what it uses. */
const sharedConstants: Plugin = {
  name: "shared constants",
  transform(code, file) {
    if (!file.endsWith(".gen.ts")) return;
    const imports = code.replace(CONSTANT, (_, name: string, value: string) => {
      // CommonJS, which ES modules can import too
      const constant = value.replace(SCRIPT_OF_TWIN, 'require("./$&.cjs")');
      write(`dist/lua/${name}.cjs`, `module.exports = ${constant};\n`);
      return `import ${name} from "dist:lua/${name}.cjs";\nexport { ${name} };`;
    });
    return { code: imports, map: { mappings: "" } };
  },
  resolveId(id) {
    return id.startsWith("dist:") ? { id, external: true, moduleSideEffects: false } : undefined;
  },
};

const typescript = resolve("node_modules/typescript/bin/tsc");
const root = process.cwd();

for (const folder of process.argv.slice(2)) {
  process.chdir(resolve(root, folder));
  const { exports, bin } = JSON.parse(readFileSync("package.json", "utf8"));
  rmSync("dist", { recursive: true, force: true });
  const entries = entriesOf(exports);
  await buildModules(entries.length > 0 ? entries : entriesOf(bin), entries.length > 0);
  if (entries.length > 0) await buildTypes(entries);
}

/** Returns the entries without folder and extension. */
function entriesOf(targets: object): string[] {
  const files = JSON.stringify(targets).matchAll(/"(?:\.\/)?dist\/(?!cjs\/)([^"]+)\.js"/g);
  return [...new Set([...files].map(([, entry = ""]) => entry))];
}

async function buildModules(entries: readonly string[], isLibrary: boolean): Promise<void> {
  const input = Object.fromEntries(entries.map((entry) => [entry, `./src/${entry}.ts`]));
  await using bundle = await rolldown({ ...INPUT, input, plugins: [sharedConstants] });
  const perModule = { preserveModules: true, preserveModulesRoot: "src", sourcemap: !isLibrary };
  writeAll(await bundle.generate({ ...OUTPUT, ...perModule, dir: "dist", format: "esm" }), "dist");
  if (!isLibrary) return;
  // only bundlers read annotations, and they get the modules
  const forNode = { comments: { annotation: false }, dir: "dist/cjs", format: "cjs" } as const;
  writeAll(await bundle.generate({ ...OUTPUT, ...forNode }), "dist/cjs");
  write("dist/cjs/package.json", '{ "type": "commonjs" }\n');
}

function writeAll({ output }: RolldownOutput, folder: string): void {
  for (const file of output) {
    if (file.type === "asset") continue; // a source map, which its chunk has too
    const target = join(folder, file.fileName);
    const values = file.code.replace(GETTER, "exports.$1=$2");
    const { code, mappings } = withLineBreaks(values, decode(file.map?.mappings ?? ""));
    const pathOf = (_: string, path: string) => relative(dirname(target), join("dist", path));
    write(target, code.replaceAll(SHARED, pathOf));
    if (file.map !== null) write(`${target}.map`, lineMap(file.map.sources, mappings));
  }
}

/**
 * Breaks code into lines of about a hundred characters, since Node prints the whole line that threw an uncaught error. It
 * breaks where a segment of the source map begins, which is never inside a text, and a semicolon or a brace ends.
 */
function withLineBreaks(code: string, from: SourceMapMappings) {
  const lines: string[] = [];
  const mappings: SourceMapSegment[][] = [];
  code.split("\n").forEach((line, i) => {
    let start = 0;
    mappings.push([]);
    for (const [column, ...origin] of from[i] ?? []) {
      if (column - start >= 100 && ";{".includes(line[column - 1] ?? " ")) {
        lines.push(line.slice(start, column));
        mappings.push([]);
        start = column;
      }
      mappings.at(-1)?.push([column - start, ...origin] as SourceMapSegment);
    }
    lines.push(line.slice(start));
  });
  return { code: lines.join("\n"), mappings };
}

/**
 * Reduces a source map to what a stack trace needs: the line that each piece of code is from. Columns, names and the text
 * of the sources would make it several times as large.
 */
function lineMap(sources: readonly string[], mappings: SourceMapMappings): string {
  const lines = mappings.map((segments) => {
    const kept: SourceMapSegment[] = [];
    for (const [column, source, line] of segments) {
      if (source === undefined || line === undefined) continue;
      const last = kept.at(-1);
      if (last?.[1] === source && last[2] === line) continue;
      // a shorter piece counts as the line of the next one: it is hardly a call
      const isTiny = last !== undefined && column - last[0] < 20;
      kept.push([(isTiny ? kept.pop()?.[0] : undefined) ?? column, source, line, 0]);
    }
    return kept;
  });
  return JSON.stringify({ version: 3, sources, names: [], mappings: encode(lines) });
}

async function buildTypes(entries: readonly string[]): Promise<void> {
  const declarations = resolve("dist/types");
  const args = ["-p", "tsconfig.build.json", "--outDir", declarations];
  const { status } = spawnSync(process.execPath, [typescript, ...args], { stdio: "inherit" });
  if (status !== 0) process.exit(1);
  const input = Object.fromEntries(
    entries.map((entry) => [entry, join(declarations, `${entry}.d.ts`)]),
  );
  await using bundle = await rolldown({ ...INPUT, input, plugins: [dts({ dtsInput: true })] });
  const { output } = await bundle.generate({
    dir: "dist/cjs",
    entryFileNames: "[name].ts",
    chunkFileNames: "shared-[hash].d.ts",
    hashCharacters: "hex",
  });
  const chunks = output.filter((file) => file.type === "chunk");
  const names = chunks.filter(({ isEntry }) => isEntry).flatMap((entry) => entry.exports);
  const isShown = shownBy(names, chunks.map(({ code }) => code).join(""));
  for (const { fileName, code } of chunks) {
    const text = code
      .replace(DECLARATION, (all, name) => (isShown.has(name) ? all : all.replace(COMMENT, "")))
      .replace(
        IMPORT_OF_ES_ONLY,
        'import type { default as $1,$2 with { "resolution-mode": "import" };',
      );
    write(join("dist/cjs", fileName), text);
  }
  for (const entry of entries) {
    const path = relative(dirname(entry), `cjs/${entry}.js`);
    write(`dist/${entry}.d.ts`, `export * from "./${path}";\n`);
  }
  rmSync(declarations, { recursive: true });
}

/**
 * Returns the declarations whose doc comments an editor shows: public ones, what they inherit, and the type of a constant.
 * The others would make the types half as large again.
 */
function shownBy(names: readonly string[], code: string): ReadonlySet<string> {
  const heads = new Map(
    [...code.matchAll(DECLARATION)].map(([text, name = ""]) => [name, headOf(text)]),
  );
  const shown = new Set(names);
  for (const name of shown) {
    for (const [word] of heads.get(name)?.matchAll(/\w+/g) ?? [])
      if (heads.has(word)) shown.add(word);
  }
  return shown;
}

/** Returns the code of a declaration; of a class or an interface only what precedes its members. */
function headOf(declaration: string): string {
  const code = declaration.replace(COMMENT, "");
  return /^(?:declare |abstract )*(?:class|interface)/.test(code)
    ? (/^.*(?= \{$)/m.exec(code)?.[0] ?? "").replace(/<.*?>/g, "")
    : code;
}

function write(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
