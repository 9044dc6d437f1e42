import { readFileSync } from "node:fs";
import { build } from "esbuild";
import * as assert from "uvu/assert";
import { IMPORTS, sizeOf } from "../../scripts/sizes.ts";
import { suite } from "../support/suite.ts";

/** The most that an import may cost in a bundle, kB: what docs/api.md promises. */
function promised(name: string): number {
  const page = readFileSync("docs/api.md", "utf8").replaceAll("`", "");
  const [, most] = new RegExp(`^\\| ${name}\\b[^|]*\\| ([\\d.]+) kB \\|$`, "m").exec(page) ?? [];
  return Number(most);
}

const test = suite("sizes of bundles");

for (const [name, [entry, names]] of Object.entries(IMPORTS)) {
  test(`an import of ${name} stays within its bound`, async () => {
    // as `npm run sizes` prints it
    const size = Number((await sizeOf(entry, names)).toFixed(1));
    const most = promised(name);
    assert.ok(size <= most, `${size} kB, at most ${most} kB`);
  });
}

test("errors keep their names in a bundle whose classes are renamed", async () => {
  const { outputFiles } = await build({
    stdin: {
      contents: `import * as errors from "./src/ground/errors.ts";
        export const names = Object.entries(errors)
          .filter(([, kind]) => kind.code !== undefined)
          .map(([name, Kind]) => [name, new Kind("name", 1, 2).name]);`,
      resolveDir: process.cwd(),
    },
    bundle: true,
    minify: true,
    format: "esm",
    write: false,
  });
  const [{ text = "" } = {}] = outputFiles;
  const { names } = await import(`data:text/javascript,${encodeURIComponent(text)}`);
  assert.ok(names.length > 5);
  for (const [name, inBundle] of names) assert.is(inBundle, name);
});

test.run();
