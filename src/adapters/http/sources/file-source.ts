import { readFile, stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { watch } from "chokidar";
import { checkText } from "../../../check.ts";
import { poll } from "./poll.ts";
import { LONGEST_TEXT, type RuleSource, tooLong } from "./source.ts";

/** Nobody has written for that long: the file is whole. */
const SETTLED_MS = 100;
/** Who still writes then is not waited for. */
const MOST_LOOKS = 50;
/** Some file systems tell nobody: network shares, the volumes of Kubernetes. */
const LOOK_MS = 5000;

/**
 * Rules in a file, which is watched: a change holds as soon as nobody has written to the file for a
 * tenth of a second, and on file systems that tell of no changes within five seconds. A file that
 * is put in its place, as editors do it, is a change too.
 *
 * @param path of the file: YAML, at most 524 288 bytes
 * @returns a source for `createGateway`
 * @throws TypeError where the path is no text
 * @example
 * const gateway = await createGateway({ rules: fileSource("rules.yaml") });
 */
export function fileSource(path: string): RuleSource {
  checkText("path", path);
  return {
    name: path,

    async load(signal) {
      for (let looks = 1; ; looks++) {
        const { size, mtimeMs } = await stat(path);
        if (size > LONGEST_TEXT) throw tooLong(path);
        // half a file may be good rules, too; a file system has its own clock, which may be ahead
        const agoMs = Date.now() - mtimeMs;
        if (agoMs < 0 || agoMs >= SETTLED_MS || looks === MOST_LOOKS) break;
        await sleep(SETTLED_MS - agoMs, undefined, { signal });
      }
      return readFile(path, "utf8");
    },

    watch(changed) {
      const awaitWriteFinish = { stabilityThreshold: SETTLED_MS, pollInterval: 20 };
      const options = { persistent: false, ignoreInitial: true, awaitWriteFinish };
      const watcher = watch(path, options).on("all", changed);
      // what it cannot watch is looked at all the same
      watcher.on("error", () => {});
      const stop = poll(changed, LOOK_MS);
      return () => {
        stop();
        return watcher.close();
      };
    },
  };
}
