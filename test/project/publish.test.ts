import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import * as assert from "uvu/assert";
import { addresses } from "../../scripts/publish.ts";
import { suite } from "../support/suite.ts";

const test = suite("publishing", { timeoutMs: 30_000 });

test("the addresses of a package are those of the repository in which the workflow runs", () => {
  const env = { GITHUB_SERVER_URL: "https://git.example", GITHUB_REPOSITORY: "some/fork" };
  assert.equal(addresses(env, "."), {
    repository: { type: "git", url: "git+https://git.example/some/fork.git" },
    homepage: "https://git.example/some/fork#readme",
    bugs: "https://git.example/some/fork/issues",
  });
  const { repository, homepage } = addresses(env, "gateway");
  assert.is((repository as { directory?: string }).directory, "gateway");
  assert.is(homepage, "https://git.example/some/fork/tree/HEAD/gateway#readme");
});

test("without a repository nothing is published, and package.json is unchanged", () => {
  const before = readFileSync("package.json", "utf8");
  const { status, stderr } = spawnSync(
    process.execPath,
    ["--import", "tsx", "scripts/publish.ts", "--dry-run"],
    { encoding: "utf8", env: { ...process.env, GITHUB_REPOSITORY: "", NODE_V8_COVERAGE: "" } },
  );
  assert.is(status, 1);
  assert.match(stderr, "GITHUB_REPOSITORY must name the repository");
  assert.is(readFileSync("package.json", "utf8"), before);
});

test("package.json has no address of its own", () => {
  for (const folder of [".", "gateway", "cli"]) {
    const { repository, homepage, bugs } = JSON.parse(
      readFileSync(`${folder}/package.json`, "utf8"),
    );
    assert.equal([repository, homepage, bugs], [undefined, undefined, undefined], folder);
  }
});

test.run();
