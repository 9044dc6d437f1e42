import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { format } from "node:util";
import * as assert from "uvu/assert";
import { githubSlug } from "../../../site/.vitepress/github-slug.ts";
import { freshUrl } from "../redis/server.ts";
import { suite } from "../suite.ts";

/** Packages whose blocks are compiled only: the project does not install them, or they need a server. */
const COMPILED_ONLY = [
  "@jest/globals",
  "@upstash/ratelimit",
  "@upstash/redis",
  "pg",
  "sinon",
  "vitest",
];

/** Languages of blocks that are not programs of this package. */
const SHOWN_ONLY = ["go", "java", "lua", "sh", "sql", "text", "yaml"];

const AMBIENT = COMPILED_ONLY.filter((name) => !existsSync(join("node_modules", name)))
  .map((name) => `declare module "${name}";\n`)
  .join("");

interface Block {
  readonly page: string;
  readonly title: string;
  readonly code: string;
  readonly file: string;
}

/**
 * Declares the tests of pages. Every `ts` block is a program: it compiles, it runs, and it prints
 * what the comments behind its console.log lines say. "about 200" is for real time, which may be
 * late and is never early. A block that imports `node:test` runs as a test file of its own.
 */
export function testPages(title: string, paths: readonly string[]): void {
  const pages = paths.map((page) => ({ page, text: readFileSync(page, "utf8") }));
  // inside the project, where its packages are found
  mkdirSync(".cache", { recursive: true });
  const scratch = mkdtempSync(resolve(".cache/pages-"));
  const blocks = pages.flatMap(({ page, text }) => blocksOf(page, text, scratch));
  const test = suite(title);
  let errors: readonly string[] | undefined;
  /** All blocks are compiled at once, for the first test that runs: with --grep that may be any of them. */
  const errorsOf = (path: string) => {
    errors ??= compile(scratch);
    return errors.filter((line) => line.startsWith(relative("", path)));
  };

  test.before(async () => {
    for (const { code, file } of blocks) writeFileSync(file, code);
    process.env.REDIS_URL = await freshUrl();
  });
  test.after(() => rmSync(scratch, { recursive: true, force: true }));

  test("has blocks of code that compile", () => {
    assert.ok(blocks.length > 0);
    assert.equal(errorsOf(""), []);
  });

  for (const { title, code, file } of blocks) {
    if (COMPILED_ONLY.some((name) => imports(code, name))) continue;
    if (imports(code, "node:test")) {
      test(`${title}: passes`, () => {
        assert.equal(errorsOf(file), []);
        const { status, stdout } = runNode("--import", "tsx", file);
        assert.is(status, 0, stdout);
      });
    } else {
      test(`${title}: runs and prints what it says`, async () => {
        assert.equal(errorsOf(file), []);
        await printsWhatItSays(code, file);
      });
    }
  }

  for (const { page, text } of pages) {
    test(`${page} has code in known languages only`, () => {
      const languages = [...text.matchAll(/^```(\S+)/gm)].map(([, language = ""]) => language);
      const unknown = languages.filter((name) => name !== "ts" && !SHOWN_ONLY.includes(name));
      assert.equal(unknown, []);
    });

    test(`${page} links to files and headings that exist`, () => assert.equal(deadLinks(page), []));
  }

  test.run();
}

function blocksOf(page: string, text: string, scratch: string): Block[] {
  return [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code = ""], i) => {
    const name = `${page.replaceAll(/\W+/g, "-")}-${i + 1}`;
    const start = code.split("\n").find((line) => !/^(import .*|\/\/.*|)$/.test(line));
    return {
      page,
      title: `${page}, block ${i + 1}, "${start}"`,
      code,
      file: join(scratch, `${name}.mts`),
    };
  });
}

function imports(code: string, name: string): boolean {
  return code.includes(` from "${name}";`);
}

/** Returns the lines that the compiler prints. */
function compile(scratch: string): string[] {
  const project = {
    extends: resolve("tsconfig.json"),
    compilerOptions: { typeRoots: [resolve("node_modules/@types")] },
    include: ["*.mts", "*.d.ts"],
  };
  writeFileSync(join(scratch, "not-installed.d.ts"), AMBIENT);
  writeFileSync(join(scratch, "tsconfig.json"), JSON.stringify(project));
  const { stdout, stderr } = runNode(
    resolve("node_modules/typescript/bin/tsc"),
    ...["-p", scratch, "--singleThreaded"],
  );
  return `${stdout}${stderr}`.split("\n").filter((line) => line !== "");
}

function runNode(...args: string[]) {
  const env = { ...process.env, NODE_V8_COVERAGE: "", NODE_TEST_CONTEXT: undefined };
  return spawnSync(process.execPath, args, { encoding: "utf8", env });
}

async function printsWhatItSays(code: string, file: string): Promise<void> {
  const promised = [...code.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].map(([, says]) => says);
  const url = pathToFileURL(file).href;
  // on a busy machine a wait may be late, and the next one shorter by that
  for (let attempt = 1; ; attempt++) {
    const printed = await prints(() => import(`${url}?${attempt}`));
    const wrong = promised.findIndex((says = "", line) => !keeps(printed[line], says));
    if (wrong < 0 && (promised.length === 0 || printed.length === promised.length)) return;
    assert.ok(attempt < 5, `it printed ${printed.join(" | ")}, not ${promised.join(" | ")}`);
  }
}

function keeps(printed: string | undefined, says: string): boolean {
  const about = /^about (\d+)$/.exec(says)?.[1];
  return about === undefined ? printed === says : Number(printed) > 0.6 * Number(about);
}

async function prints(run: () => Promise<unknown>): Promise<string[]> {
  const lines: string[] = [];
  const { log } = console;
  console.log = (...values) => void lines.push(format(...values));
  try {
    await run();
  } finally {
    console.log = log;
  }
  return lines;
}

/** The links of a page to files, or headings of Markdown files, that do not exist. */
function deadLinks(page: string): string[] {
  const text = readFileSync(page, "utf8");
  return [...text.matchAll(/\]\(([^)\s]*)\)/g)]
    .map(([, link = ""]) => link)
    .filter((link) => {
      if (/^https?:/.test(link)) return false;
      const [path = "", heading] = link.split("#");
      const file = join(dirname(page), path || basename(page));
      if (!existsSync(file)) return true;
      return heading !== undefined && !headingsOf(file).includes(heading);
    });
}

/** The anchors of a Markdown file's headings, as GitHub and the site make them. */
function headingsOf(file: string): string[] {
  const text = readFileSync(file, "utf8").replaceAll(/^```.*?^```$/gms, "");
  const slugs = [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) => githubSlug(heading));
  return slugs.map((slug, i) => {
    const before = slugs.slice(0, i).filter((other) => other === slug).length;
    return before === 0 ? slug : `${slug}-${before}`;
  });
}
