import { build } from "esbuild";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { RulesError } from "../../src/index.ts";

const test = suite("RulesError");

const PROBLEM = { source: "rules.yaml", line: 2, column: 5, message: "rpu must be a number" };

/** Bundles the class, with the names of all classes made short. */
async function minified(): Promise<typeof RulesError> {
  const { outputFiles } = await build({
    entryPoints: ["gateway/src/rules/rules-error.ts"],
    bundle: true,
    minify: true,
    format: "esm",
    write: false,
  });
  const code = Buffer.from(outputFiles[0]?.contents ?? []).toString("base64");
  const module = await import(`data:text/javascript;base64,${code}`);
  return module.RulesError;
}

test("it keeps its name when it is minified, and is an instance for other copies", async () => {
  const Minified = await minified();
  assert.is.not(Minified.name, "RulesError");
  const error = new Minified([PROBLEM]);
  assert.is(`${error}`, "RulesError: rules.yaml:2:5: rpu must be a number");
  assert.instance(error, RulesError);
});

test("a class that extends it has its own name", () => {
  class TeamRulesError extends RulesError {}
  assert.is(new TeamRulesError([PROBLEM]).name, "TeamRulesError");
  assert.not(new RulesError([PROBLEM]) instanceof TeamRulesError);
});

test.run();
