/** docs/options.md names every option. */
import { readFileSync } from "node:fs";
import { fixedWindow, Limiter } from "smooth-limiter";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { createGateway, limitRequests } from "../../src/index.ts";

const test = suite("the page of options");

const page = readFileSync("gateway/docs/options.md", "utf8");

/** The options that the error for an unknown one lists. */
async function optionsOf(create: (options: object) => unknown): Promise<readonly string[]> {
  try {
    await create({ "": 0 });
  } catch (error) {
    return String(error).split("expected one of ")[1]?.split(", ") ?? [];
  }
  return [];
}

test("names every option of createGateway and of a limit", async () => {
  const section = (title: string) =>
    page.split(/^## /m).find((each) => each.startsWith(title)) ?? "";
  const limiter = Limiter.create(fixedWindow({ limit: 1, windowMs: 1 }));
  for (const [title, create] of [
    ["`createGateway`", createGateway],
    ["A limit in one call", (options: object) => limitRequests(limiter, options)],
  ] as const) {
    const options = await optionsOf(create as (options: object) => unknown);
    assert.ok(options.length > 5);
    assert.equal(
      options.filter((name) => !section(title).includes(`\`${name}\``)),
      [],
    );
  }
});

test.run();
