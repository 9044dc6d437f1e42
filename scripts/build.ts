// Builds packages of this repository: build.ts <folder>… makes the dist/ of each folder from its
// tsconfig.build.json and the "exports" of its package.json.
//
//   dist/**/*.js               the ES modules, one for each source: bundlers leave out what is not used
//   dist/cjs/**/*.js           CommonJS, of packages with entries: one file for each entry, and one for code that several entries share. Node loads
//                              these for `import`, too: few files load in a third of the time, and there is one copy
//   dist/**/*.js.map           for stack traces: the line of src that code is from (src itself would double the package)
//   dist/lua/*.cjs             the Lua of both builds: one file for each constant of lua.gen.ts
//   dist/cjs/**/*.d.ts         the types of both builds
//   dist/**/*.d.ts             the entries' types for ES modules: each re-exports those of dist/cjs
//
// The types exist once, so a class has the same type in both builds. They are CommonJS, because an ES
// module may import types of CommonJS but not the reverse.
//
// The JavaScript has no comments, and short names for local variables, private members and functions that only one
// file uses. Classes, methods and exported functions keep their names, so that stack traces can be read.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { build, transform } from "esbuild";
import { minify } from "terser";
import { lineMap } from "./line-map.ts";
import { pruneTypes } from "./prune-types.ts";

/** Packages without CommonJS. A CommonJS declaration may import only their types, with an explicit `resolution-mode`. */
const ES_ONLY = ["p-queue"];

/** An import of a package in what esbuild writes. */
const FOREIGN = /^(?:import .*|\}) from "(?!\.)[^"]+";$|^import "(?!\.)/m;

/** A generated constant that uses no other constant. */
const CONSTANT = /^export const (\w+) = (".*?"|\{\s+0: .*?\});$/gms;

/** The name of a function that a module exports. */
const FUNCTION = /(?<=^export (?:async )?function\*? )\w+/gm;

const typescript = resolve("node_modules/typescript/bin/tsc");
const root = process.cwd();

for (const folder of process.argv.slice(2)) {
  process.chdir(resolve(root, folder));
  const { exports } = JSON.parse(readFileSync("package.json", "utf8"));
  const targets = JSON.stringify(exports).match(/\.\/dist\/(?!cjs\/)[^"]+\.js/g);
  const entries = [...new Set(targets)];
  rmSync("dist", { recursive: true, force: true });
  const { status } = spawnSync(process.execPath, [typescript, "-p", "tsconfig.build.json"], {
    stdio: "inherit",
  });
  if (status !== 0) process.exit(1);
  for (const file of list("dist", ".gen.js")) shareConstants(file);
  // a package without entries is a program, which nobody imports
  if (entries.length > 0) {
    await buildCommonJs(entries);
    moveTypes(entries);
  } else for (const file of list("dist", ".d.ts")) rmSync(file);
  const modules = list("dist", ".js").map((file) => readFileSync(file, "utf8"));
  const kept = new RegExp(
    `^(?:${modules.flatMap((text) => text.match(FUNCTION) ?? []).join("|")})$`,
  );
  const code = [...list("dist", ".js"), ...list("dist", ".cjs")];
  for (const file of code) await shorten(file, kept);
}

/**
 * Moves generated constants to files that both builds load. They are CommonJS, which ES modules can import too; and one
 * for each constant, so that a bundle contains only what it uses.
 */
function shareConstants(file: string): void {
  const code = readFileSync(file, "utf8").replace(CONSTANT, (_, name: string, value: string) => {
    const target = join("dist", basename(file, ".gen.js"), `${name}.cjs`);
    write(target, `module.exports = ${value};\n`);
    return `import ${name} from "${relative(dirname(file), target)}";\nexport { ${name} };`;
  });
  writeFileSync(file, code);
  rmSync(`${file}.map`);
}

async function buildCommonJs(entries: readonly string[]): Promise<void> {
  const { outputFiles } = await build({
    absWorkingDir: process.cwd(),
    entryPoints: [...entries],
    outbase: "dist",
    outdir: "dist/cjs",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "es2022",
    packages: "external",
    external: ["*.cjs"],
    chunkNames: "shared-[hash]",
    sourcemap: "external",
    sourcesContent: false,
    write: false,
  });
  const maps = new Map(outputFiles.map(({ path, text }) => [path, text]));
  for (const { path, text } of outputFiles) {
    if (path.endsWith(".map")) continue;
    const named = withClassNames(text);
    const isEntry = !basename(path).startsWith("shared-");
    const map = maps.get(`${path}.map`) ?? "";
    const cjs = FOREIGN.test(named)
      ? await withInterop(named, map)
      : { code: asCommonJs(named, isEntry), map };
    write(path, cjs.code);
    write(`${path}.map`, cjs.map);
  }
  write("dist/cjs/package.json", '{ "type": "commonjs" }\n');
}

/** Gives classes their own names again: esbuild writes `var Name = class _Name {`, or leaves the second name out. */
function withClassNames(text: string): string {
  let named = text.replace(/^var (\w+) = class(?= extends | \{)/gm, "var $1 = class $1");
  for (const [, name = "", alias = ""] of text.matchAll(/^var (\w+) = class (_\1|\1\d+)\b/gm)) {
    named = named.replaceAll(new RegExp(`\\b${alias}\\b`, "g"), name);
  }
  return named;
}

/** Returns the CommonJS of an ES module that imports packages: they may be of either kind. */
async function withInterop(text: string, map: string) {
  const url = `data:application/json;base64,${Buffer.from(map).toString("base64")}`;
  const made = await transform(`${text}//# sourceMappingURL=${url}\n`, {
    format: "cjs",
    platform: "node",
    target: "es2022",
    sourcemap: "external",
    sourcesContent: false,
  });
  return { code: withClassNames(made.code), map: made.map };
}

/**
 * Returns the CommonJS of an ES module that esbuild has written, and that imports only other such modules: no
 * cycles. Each piece of code stays in its line, so the map holds.
 */
function asCommonJs(text: string, isEntry: boolean): string {
  const code = text
    .replace(/^import \{([^}]*)\} from ("[^"]+");$/gm, (_, names: string, path: string) => {
      return `const {${names.replaceAll(" as ", ": ")}} = require(${path});`;
    })
    .replace(/^import (\w+) from ("[^"]+");$/gm, "const $1 = require($2);")
    .replace(/^import ("[^"]+");$/gm, "require($1);")
    .replace(/^export \{([^}]*)\};$/gm, (_, names: string) => {
      if (!isEntry) return `module.exports = {${names.replace(/(\w+) as (\w+)/g, "$2: $1")}};`;
      const pairs = names.split(",").map((name) => name.trim().split(" as "));
      return pairs.map(([own, name = own]) => `exports.${name} = ${own};`).join("\n");
    });
  const mark = isEntry ? 'Object.defineProperty(exports, "__esModule", { value: true });' : "";
  return mark + code;
}

/** Moves the declarations that the entries reach to dist/cjs, and removes the others. */
function moveTypes(entries: readonly string[]): void {
  const declarations = entries.map((entry) => entry.replace(/^\.\//, "").replace(/\.js$/, ".d.ts"));
  pruneTypes(list("dist", ".d.ts"), declarations);
  for (const file of list("dist", ".d.ts")) {
    write(join("dist/cjs", relative("dist", file)), typesOf(file));
    rmSync(file);
  }
  for (const file of declarations) {
    const target = join("dist/cjs", relative("dist", file));
    const path = relative(dirname(file), target).replace(/\.d\.ts$/, ".js");
    write(file, `export * from "./${path}";\n`);
  }
}

function typesOf(file: string): string {
  const names = ES_ONLY.join("|");
  const imports = new RegExp(`^import (?:type )?(.+ from "(?:${names})");$`, "gm");
  const attribute = 'with { "resolution-mode": "import" }';
  return readFileSync(file, "utf8").replace(imports, `import type $1 ${attribute};`);
}

/** @param kept matches the names of functions that stay */
async function shorten(file: string, kept: RegExp): Promise<void> {
  const isCommonJs = file.startsWith(join("dist/cjs/")) || file.endsWith(".cjs");
  const parse: object = { module: !isCommonJs };
  const options = {
    parse,
    keep_classnames: true,
    keep_fnames: kept,
    compress: { ecma: 2022, toplevel: true },
    mangle: { toplevel: true },
    format: { ecma: 2022, semicolons: false, preserve_annotations: !isCommonJs },
  } as const;
  const mapFile = `${file}.map`;
  // generated constants have none
  const sourceMap = existsSync(mapFile) && {
    content: readFileSync(mapFile, "utf8"),
    url: basename(mapFile),
  };
  const source = readFileSync(file, "utf8");
  const { code = "", map } = await minify(source, { ...options, sourceMap });
  // tells Node the names that an ES module may import; the minifier removes it, because it is never run
  const [names = ""] = /^0 && \(module\.exports = \{[^}]*\}\);$/m.exec(source) ?? [];
  writeFileSync(
    file,
    code.replace(/(?=\n\/\/# sourceMappingURL)|$/, `\n${names.replace(/\s/g, "")}`),
  );
  if (map !== undefined) writeFileSync(mapFile, lineMap(String(map)));
}

function list(folder: string, end: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(end))
    .map((file) => join(folder, file));
}

function write(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
