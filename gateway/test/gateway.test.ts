import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import { createGateway, readRules } from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("gateway");

test("a rule on / applies to every path", async () => {
  const rules = readRules("url: /\nrules: [{ actor: all, unit: second, rpu: 2 }]");
  const gateway = await createGateway({ rules, clock: new FakeClock() });
  const verdicts = await Promise.all([1, 2, 3].map(() => gateway.check(request("/sample"))));
  assert.equal(
    verdicts.map(({ allowed }) => allowed),
    [true, true, false],
  );
  assert.is(verdicts[2]?.retryMs, 500);
  await gateway.close();
});

test.run();
