import * as assert from "uvu/assert";
import { perKey, perOrigin } from "../../../src/adapters/fetch/index.ts";
import { RateLimiter } from "../../../src/index.ts";
import { failure } from "../../support/limiter/watch.ts";
import { mapIterations } from "../../support/map-iterations.ts";
import { suite } from "../../support/suite.ts";

const test = suite("a limiter for each key");

const make = () => RateLimiter.create(1);

test("each origin has one limiter, for every path", () => {
  const origins: string[] = [];
  const of = perOrigin((origin) => {
    origins.push(origin);
    return make();
  });
  const a = of(new Request("https://a.test/1?q"));
  assert.is(of(new Request("https://a.test:443/2")), a);
  assert.is.not(of(new Request("http://a.test/1")), a);
  assert.equal(origins, ["https://a.test", "http://a.test"]);
});

test("a function chooses the key of a request", () => {
  const of = perKey((request) => request.headers.get("x-tenant") ?? "", make);
  const request = (tenant: string) =>
    new Request("http://a.test", { headers: { "x-tenant": tenant } });
  assert.is(of(request("ann")), of(request("ann")));
  assert.is.not(of(request("ann")), of(request("bob")));
});

test("the limiter that was unused for longest is dropped", () => {
  const of = perOrigin(make, { maxKeys: 2 });
  const ask = (name: string) => of(new Request(`http://${name}.test`));
  const [a, b] = [ask("a"), ask("b")];
  assert.is(ask("a"), a);
  const c = ask("c");
  assert.equal([ask("a") === a, ask("c") === c, ask("b") === b], [true, true, false]);
});

test("the cost of a new key does not grow with the number of those that are kept", async () => {
  const limiter = make();
  const request = new Request("http://a.test");
  let keys = 0;
  const of = perKey(
    () => `key ${keys++}`,
    () => limiter,
    { maxKeys: 1000 },
  );
  const begun = await mapIterations(() => {
    for (let i = 0; i < 3000; i++) of(request);
  });
  assert.ok(begun < 100, `${begun} iterations for 2000 keys that replace others`);
});

test("bad arguments are refused", async () => {
  const rows: [action: () => unknown, message: string][] = [
    [() => perOrigin(5 as never), "make must be a function, got 5"],
    [() => perKey("host" as never, make), 'keyOf must be a function, got "host"'],
    [() => perOrigin(make, { maxKeys: 0 }), "maxKeys must be a whole number, 1 or more, got 0"],
    [() => perOrigin(make, { most: 1 } as never), 'options has no "most"; expected one of maxKeys'],
  ];
  for (const [action, message] of rows) assert.match(String(await failure(action)), message);
});

test.run();
