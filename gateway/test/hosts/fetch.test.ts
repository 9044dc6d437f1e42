import { Hono } from "hono";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import {
  type Answer,
  type Checker,
  createGateway,
  fetchGateway,
  type Gateway,
  honoGateway,
  limitConnections,
  readRules,
} from "../../src/index.ts";

const test = suite("fetch-style handlers");

const URL = "http://localhost/hello";

function open(): Promise<Gateway> {
  const text = "url: /\nrules: [{ name: r, actor: device, unit: day, rpu: 9 }]";
  return createGateway({ rules: readRules(text) });
}

/** Tells the address that the filter sees. */
function watch(): { checker: Checker; seen: (string | undefined)[] } {
  const seen: (string | undefined)[] = [];
  const check: Checker["check"] = ({ remoteAddress }) => {
    seen.push(remoteAddress);
    return { allowed: true, retryMs: 0, outcomes: [] };
  };
  return { checker: { check }, seen };
}

test("the address is read where Deno, Bun and @hono/node-server put it, or with remoteAddress", async () => {
  const { checker, seen } = watch();
  const hello = (_request: Request, ..._platform: unknown[]) => new Response("hello");
  const handle = fetchGateway(checker, hello);
  await handle(new Request(URL), { remoteAddr: { hostname: "192.0.2.1", port: 1 } });
  await handle(new Request(URL), { requestIP: () => ({ address: "192.0.2.2" }) });
  await handle(new Request(URL), { incoming: { socket: { remoteAddress: "192.0.2.3" } } }, 5);
  await handle(new Request(URL), { requestIP: () => null });
  await handle(new Request(URL));
  const withAddress = fetchGateway(checker, hello, {
    remoteAddress: (request) => request.headers.get("cf-connecting-ip"),
  });
  await withAddress(new Request(URL, { headers: { "cf-connecting-ip": "192.0.2.4" } }));
  await withAddress(new Request(URL));
  const unknown = [undefined, undefined];
  assert.equal(seen, ["192.0.2.1", "192.0.2.2", "192.0.2.3", ...unknown, "192.0.2.4", undefined]);
});

test("in Hono too", async () => {
  const { checker, seen } = watch();
  const context = (env: unknown) => ({
    req: { raw: new Request(URL) },
    env,
    res: new Response("hello"),
    header: () => {},
  });
  const next = async () => {};
  const address = { requestIP: () => ({ address: "192.0.2.1" }) };
  await honoGateway(checker)(context(address), next);
  await honoGateway(checker)(context({ server: address }), next);
  await honoGateway(checker)(context(undefined), next);
  await honoGateway(checker, { remoteAddress: () => "192.0.2.2" })(context({}), next);
  assert.equal(seen, ["192.0.2.1", "192.0.2.1", undefined, "192.0.2.2"]);
  const wrong = { remoteAddress: "x-real-ip" } as object;
  assert.throws(() => honoGateway(checker, wrong), /remoteAddress must be a function, got "x-real/);
});

test("an answer that cannot be changed is copied", async () => {
  const handle = fetchGateway(await open(), () => Response.redirect("http://localhost/there", 302));
  const { status, headers } = await handle(new Request(URL));
  assert.equal([status, headers.get("location")], [302, "http://localhost/there"]);
  assert.match(headers.get("ratelimit") ?? "", /^"r";r=8;t=/);
});

test("a place is free when the body is read, cancelled, empty, or never sent", async () => {
  const answers: (() => Response)[] = [];
  const checker = limitConnections(1, { actor: () => "all" });
  const handle = fetchGateway(checker, () => (answers.shift() ?? (() => new Response(null)))());
  const get = () => handle(new Request(URL));

  answers.push(() => new Response("hello"));
  const read = await get();
  assert.is((await get()).status, 429, "the body is not read yet");
  assert.is(await read.text(), "hello");
  answers.push(() => new Response("hello"));
  const given = await get();
  assert.is(given.status, 200);
  await given.body?.cancel();
  await new Promise(setImmediate);

  const controller = new AbortController();
  answers.push(() => new Response("hello"));
  const gone = await handle(new Request(URL, { signal: controller.signal }));
  assert.is(gone.status, 200);
  assert.is((await get()).status, 429);
  controller.abort();

  answers.push(() => {
    throw new Error("bad");
  });
  try {
    await get();
    assert.unreachable("it was answered");
  } catch (error) {
    assert.is(String(error), "Error: bad");
  }
  assert.equal([(await get()).status, (await get()).status], [200, 200], "no body, no wait");
});

test("a place is free where the client had gone before, or Hono's handler throws anything", async () => {
  const controller = new AbortController();
  controller.abort();
  const handle = fetchGateway(limitConnections(1), () => new Response("hello"));
  await handle(new Request(URL, { signal: controller.signal }));
  assert.is(
    (await handle(new Request(URL))).status,
    200,
    "the body of the first response is never read",
  );

  const app = new Hono();
  app.use(honoGateway(limitConnections(1)));
  app.get("/", () => Promise.reject("no error at all"));
  for (let i = 0; i < 2; i++) {
    assert.is(await Promise.resolve(app.request("/")).catch(String), "no error at all");
  }
});

test("an answer that has no body", async () => {
  const checker: Checker = { check: () => ({ allowed: false, retryMs: 0, outcomes: [] }) };
  const answer = (usual: Answer) => ({ ...usual, status: 204, body: "" });
  const handle = fetchGateway(checker, () => new Response("hello"), { answer });
  assert.is((await handle(new Request(URL))).status, 204);
});

test("a client that has gone while it waited is not answered by the handler", async () => {
  let served = 0;
  const gateway = await createGateway({
    rules: readRules("url: /\nrules: [{ actor: all, unit: minute, rpu: 1, algo: LB, burst: 1 }]"),
  });
  const handle = fetchGateway(gateway, () => {
    served += 1;
    return new Response("hello");
  });
  await handle(new Request(URL));
  const controller = new AbortController();
  const waiting = handle(new Request(URL, { signal: controller.signal }));
  await new Promise(setImmediate);
  controller.abort();
  assert.equal([(await waiting).status, served], [499, 1]);
  await gateway.close();
});

test.run();
