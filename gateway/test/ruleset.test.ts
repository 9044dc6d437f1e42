import * as assert from "uvu/assert";
import { suite } from "../../test/support/suite.ts";
import { createGateway } from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("rule set");

test("rules of all kinds read the target of a request once, and each kind gets its own rules", async () => {
  const gateway = await createGateway({
    rules: [
      { url: "/api", rules: [{ actor: "all", unit: "hour", rpu: 5, name: "requests" }] },
      { url: "/api", rules: [{ actor: "all", connections: 2, name: "connections" }] },
      { url: "/api", rules: [{ bytesPerSecond: 1000, name: "bytes" }] },
      { url: "/other", rules: [{ actor: "all", connections: 1, name: "elsewhere" }] },
    ],
  });
  let reads = 0;
  const plain = { ...request("/api/cats"), onClose: () => {} };
  const counted = new Proxy(plain, {
    get(target, name) {
      if (name === "url") reads += 1;
      return Reflect.get(target, name);
    },
  });
  const { outcomes, paces } = await gateway.check(counted);
  assert.equal(
    outcomes.map(({ rule }) => rule.name),
    ["connections", "requests"],
  );
  assert.is(paces?.length, 1);
  assert.is(reads, 1);
  await gateway.close();
});

test.run();
