// Every test with random histories once more, with the fresh seed of the soaks.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

for (const file of readdirSync("test", { recursive: true, encoding: "utf8" }).sort()) {
  if (!file.endsWith(".test.ts") || file.startsWith("twins")) continue;
  const usesRandom = readFileSync(join("test", file), "utf8").includes('from "fast-check"');
  if (usesRandom || file.endsWith("promises.test.ts")) await import(`./${file}`);
}
