import * as assert from "uvu/assert";
import { progress, suite } from "../../../test/support/suite.ts";
import { targetMaker } from "../support/http/target-maker.ts";
import { openServers, send } from "../support/http/target-servers.ts";

const test = suite("5000 request targets on real servers", { timeoutMs: 900_000 });

const { seed } = progress;
const COUNT = 5000;
const AT_ONCE = 16;

test(`every target that reaches the secret has met its rule, SEED=${seed}`, async () => {
  const servers = await openServers();
  const make = targetMaker(seed);
  const served: Record<string, number> = {};
  const bypasses: string[] = [];
  let left = COUNT;
  const attack = async () => {
    while (left > 0) {
      left -= 1;
      const target = make();
      for (const [name, port] of Object.entries(servers.ports)) {
        const { answer, text } = await send(port, target);
        if (answer === "guarded") served[name] = (served[name] ?? 0) + 1;
        if (answer !== "bypassed") continue;
        bypasses.push(`${name}: ${JSON.stringify(target)}: ${text.split("\r\n\r\n")[1]}`);
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, attack));
  } finally {
    await servers.close();
  }
  console.log(served);
  assert.equal(bypasses, [], `SEED=${seed}`);
  assert.equal(Object.keys(served).sort(), Object.keys(servers.ports).sort());
});

test.run();
