import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import * as assert from "uvu/assert";
import { suite } from "../support/suite.ts";

/** Rooms of `test` that ask something of the whole library; the other rooms have the folders of `src`. */
const ACROSS = ["attacks", "project", "promises", "twins"];
/** Rooms without tests. */
const BESIDE = ["support", "fixtures"];

const layout = suite("the layout of test");

const files = readdirSync("test", { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map(({ parentPath, name }) => join(parentPath, name));
const room = (file: string) => file.split("/")[1] as string;
const isTest = (file: string) => /\.(test|soak|suite)\.ts$/.test(file);

layout("a test lies where its subject lies in src, or in a room for the whole library", () => {
  const strays = files.filter(
    (file) =>
      isTest(file) &&
      !ACROSS.includes(room(file)) &&
      !existsSync(dirname(file).replace("test", "src")),
  );
  assert.equal(strays, []);
});

layout("what is no test lies in test/support or test/fixtures", () => {
  const strays = files.filter((file) => !isTest(file) && !BESIDE.includes(room(file)));
  assert.equal(strays, []);
  assert.equal(
    files.filter((file) => isTest(file) && BESIDE.includes(room(file))),
    [],
  );
});

layout.run();
