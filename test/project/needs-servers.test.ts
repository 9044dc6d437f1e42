import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, sep } from "node:path";
import * as assert from "uvu/assert";
import { suite } from "../support/suite.ts";

const SERVERS = /support\/(?:programs|redis|postgres)/;

/** Returns whether the file, or one that it imports, imports what starts servers. */
function needsServers(file: string, seen = new Set<string>()): boolean {
  if (SERVERS.test(file)) return true;
  if (seen.has(file)) return false;
  seen.add(file);
  const imports = readFileSync(file, "utf8").matchAll(/(?:from |import\()"(\.[^"]+\.ts)"/g);
  return [...imports]
    .map(([, path = ""]) => join(dirname(file), path).replaceAll(sep, "/"))
    .some((path) => path.includes("test/") && existsSync(path) && needsServers(path, seen));
}

const test = suite("tests that need servers");

test(".github/needs-servers.txt has all test files that need Redis or PostgreSQL", () => {
  const lines = readFileSync(".github/needs-servers.txt", "utf8").trim().split("\n");
  const leftOut = new RegExp(lines.join("|"));
  const files = ["test", "gateway/test", "cli/test", "site/test"]
    .flatMap((folder) =>
      readdirSync(folder, { recursive: true, encoding: "utf8" }).map((file) => `${folder}/${file}`),
    )
    .map((file) => file.replaceAll(sep, "/"))
    .filter((file) => file.endsWith(".test.ts"));
  assert.equal(
    files.filter((file) => !leftOut.test(file) && needsServers(file)),
    [],
  );
  const unused = lines.filter((line) => !files.some((file) => new RegExp(line).test(file)));
  assert.equal(unused, []);
});

test.run();
