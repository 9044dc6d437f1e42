// Runs every test with random histories once more, with the fresh seed of the soaks.
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { stopLeftTimers } from "../../scripts/left-timers.ts";
import { suite } from "../support/suite.ts";

const files = ["test", "gateway/test", "cli/test"].flatMap((folder) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).map((file) => join(folder, file)),
);
// the twins have soaks of their own
const others = files.filter((file) => !file.startsWith(join("test", "twins")));
for (const file of others.sort()) {
  if (!file.endsWith(".test.ts")) continue;
  const usesRandom = readFileSync(file, "utf8").includes('from "fast-check"');
  if (usesRandom || file.endsWith("promises.test.ts")) {
    await import(pathToFileURL(resolve(file)).href);
    // the suites run later, one after the other; a timer that one leaves would count in those of the next file
    const end = suite(`after ${file}`);
    end("the timers that it left are stopped", stopLeftTimers);
    end.run();
  }
}
