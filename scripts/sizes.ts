// Prints the size that an import of this package adds to a bundle: esbuild, tree-shaken, minified, gzip at level 9.
//
//   npm run sizes
//
// size-limit measures the same with the same bundler, but prints no numbers that a test and the docs could take from it.

import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const WINDOWS = ["fixedWindow", "slidingLog", "slidingWindow"];
const BUCKETS = ["smoothBursty", "smoothWarmingUp", "tokenBucket", "gcra", "leakyBucket"];

/** For each line of the output: the entry, and the names that are imported from it. */
export const IMPORTS = {
  RateLimiter: ["src/index.ts", ["RateLimiter"]],
  "RateLimiter with fairShares": ["src/index.ts", ["RateLimiter", "fairShares"]],
  "Limiter and all algorithms": ["src/index.ts", ["Limiter", ...WINDOWS, ...BUCKETS]],
  RedisRateLimiter: ["src/redis/index.ts", ["RedisRateLimiter"]],
} as const;

/** Returns the size of a bundle that uses these names, kB. */
export async function sizeOf(entry: string, names: readonly string[]): Promise<number> {
  const list = names.join(", ");
  const { outputFiles } = await build({
    stdin: {
      contents: `import { ${list} } from "./${entry}"; globalThis.used = [${list}];`,
      resolveDir: process.cwd(),
    },
    bundle: true,
    minify: true,
    format: "esm",
    platform: "neutral",
    write: false,
  });
  const sizes = outputFiles.map(({ contents }) => gzipSync(contents, { level: 9 }).length);
  return sizes.reduce((sum, size) => sum + size, 0) / 1000;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  for (const [name, [entry, names]] of Object.entries(IMPORTS)) {
    console.log(`${name}: ${(await sizeOf(entry, names)).toFixed(1)} kB`);
  }
}
