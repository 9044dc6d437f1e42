import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import * as assert from "uvu/assert";
import { suite } from "../support/suite.ts";

/** Rooms of `test` that test the whole library; the other rooms have the folders of `src`. */
const ACROSS = ["attacks", "project", "promises", "twins"];
/** Rooms without tests. */
const BESIDE = ["support", "fixtures"];

const layout = suite("the layout of test");

const isTest = (file: string) => /\.(test|soak|suite)\.ts$/.test(file);

for (const folder of ["test", "gateway/test", "cli/test"]) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));
  const room = (file: string) => file.slice(folder.length + 1).split("/")[0] as string;
  const src = folder.replace(/test$/, "src");

  layout(`tests mirror the paths of subjects in ${src}, or are in whole-library rooms`, () => {
    const strays = files.filter(
      (file) =>
        isTest(file) &&
        !ACROSS.includes(room(file)) &&
        !existsSync(dirname(file).replace(folder, src)),
    );
    assert.equal(strays, []);
  });

  layout(`other files are in ${folder}/support or ${folder}/fixtures`, () => {
    const strays = files.filter((file) => !isTest(file) && !BESIDE.includes(room(file)));
    assert.equal(strays, []);
    assert.equal(
      files.filter((file) => isTest(file) && BESIDE.includes(room(file))),
      [],
    );
  });
}

layout.run();
