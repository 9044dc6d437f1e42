import { readFile, stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { watch } from "chokidar";
import { checkText } from "../ground/check.ts";
import { askInTime, poll } from "./poll.ts";
import { LONGEST_TEXT, type RuleSource, tooLong } from "./source.ts";

/** The file is complete when it has not been written to for this long. */
const SETTLED_MS = 100;
/** After this many checks the file is read although it is still being written to. */
const MOST_LOOKS = 50;
/** A network share may never answer. */
const LOAD_MS = 10_000;
/** Some file systems report no changes: network shares, the volumes of Kubernetes. */
const LOOK_MS = 5000;

/**
 * Rules in a file, which is watched. A change applies as soon as the file has not been written to
 * for a tenth of a second; on file systems that report no changes, within five seconds. Replacing
 * the file, as editors do, is a change too. Reading takes at most ten seconds.
 *
 * @param path of the file: YAML, at most 524 288 bytes
 * @returns a source for `createGateway`
 * @throws TypeError where the path is not a string
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml") });
 */
export function fileSource(path: string): RuleSource {
  checkText("path", path);
  return {
    name: path,

    load: (signal) => askInTime(LOAD_MS, path, signal, (ending) => settled(path, ending)),

    watch(changed) {
      const awaitWriteFinish = { stabilityThreshold: SETTLED_MS, pollInterval: 20 };
      const options = { persistent: false, ignoreInitial: true, awaitWriteFinish };
      const watcher = watch(path, options).on("all", changed);
      // where watching fails, polling still finds changes
      watcher.on("error", () => {});
      const stop = poll(changed, LOOK_MS);
      return () => {
        stop();
        return watcher.close();
      };
    },
  };
}

/** Resolves to the file's text as soon as it has not been written to for a while. */
async function settled(path: string, signal: AbortSignal): Promise<string> {
  for (let looks = 1; ; looks++) {
    const { size, mtimeMs } = await stat(path);
    if (size > LONGEST_TEXT) throw tooLong(path);
    // half a file may be valid rules too; the file system's clock may be ahead of ours
    const agoMs = Date.now() - mtimeMs;
    if (agoMs < 0 || agoMs >= SETTLED_MS || looks === MOST_LOOKS) break;
    await sleep(SETTLED_MS - agoMs, undefined, { signal });
  }
  return readFile(path, { encoding: "utf8", signal });
}
