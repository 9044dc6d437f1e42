import { mkdtemp, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { createServer, type RequestListener, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { createClient } from "redis";
import type { RedisSubscriber } from "smooth-limiter/redis";
import * as assert from "uvu/assert";
import { freshUrl } from "../../../test/support/redis/server.ts";
import { suite } from "../../../test/support/suite.ts";
import {
  createGateway,
  fileSource,
  functionSource,
  type RequestRule,
  type RuleSource,
  readRules,
  redisSource,
  urlSource,
} from "../../src/index.ts";

const test = suite("sources");

const rules = (rpu: number) => `url: /\nrules: [{ actor: all, unit: day, rpu: ${rpu} }]\n`;

const never = new AbortController().signal;

/** Resolves to the text that the source loads, or to the error's message. */
function loaded(source: RuleSource, signal: AbortSignal = never): Promise<unknown> {
  return source.load(signal).catch((error: Error) => error.message);
}

/** Performs the action, and resolves when a gateway on that source has rules of that rate. */
async function reaches(source: RuleSource, rpu: number, action: () => unknown): Promise<void> {
  let reached: (() => void) | undefined;
  const done = new Promise<void>((resolve) => {
    reached = resolve;
  });
  const gateway = await createGateway({
    rules: source,
    onRules: (event) => {
      if (event.type === "applied" && (event.rules[0] as RequestRule | undefined)?.rpu === rpu)
        reached?.();
    },
  });
  try {
    await action();
    await done;
  } finally {
    await gateway.close();
  }
}

let folder: string;
test.before(async () => {
  folder = await mkdtemp(join(tmpdir(), "smooth-limiter-rules-"));
});
test.after(() => rm(folder, { recursive: true, force: true }));

test("a file is watched, written or replaced", async () => {
  const path = join(folder, "rules.yaml");
  await writeFile(path, rules(1));
  const source = fileSource(path);
  assert.is(source.name, path);
  await reaches(source, 2, async () => {
    await sleep(100);
    await writeFile(path, rules(2));
  });
  await reaches(source, 3, async () => {
    await sleep(100);
    await writeFile(`${path}.new`, rules(3));
    await rename(`${path}.new`, path);
  });
});

test("a file that is still being written to is not read yet", async () => {
  const path = join(folder, "half.yaml");
  await writeFile(path, rules(1));
  const { mtimeMs } = await stat(path);
  assert.is(await loaded(fileSource(path)), rules(1));
  const agoMs = Date.now() - mtimeMs;
  assert.ok(agoMs >= 100, `${agoMs}`);
  await writeFile(path, rules(2));
  const ahead = Date.now() / 1000 + 3600;
  await utimes(path, ahead, ahead);
  assert.is(await loaded(fileSource(path)), rules(2), "another clock");
});

test("a file that does not exist, or is not a rules file", async () => {
  assert.match(String(await loaded(fileSource(join(folder, "none.yaml")))), /ENOENT/);
  const huge = join(folder, "huge.yaml");
  await writeFile(huge, "x".repeat(2 ** 19 + 1));
  assert.match(String(await loaded(fileSource(huge))), /has more than 524288 bytes/);
  assert.throws(() => fileSource(1 as unknown as string), /path must be a string, got 1/);
});

/** Starts a server. `asked` has the If-None-Match of each request. */
async function serve(answer: RequestListener) {
  const asked: (string | undefined)[] = [];
  const server: Server = createServer((request, response) => {
    asked.push(request.headers["if-none-match"]);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const close = async () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${port}/rules`, asked, close };
}

test("a URL: an ETag avoids loading unchanged rules, and a change is noticed", async () => {
  let version = 1;
  const { url, asked, close } = await serve((request, response) => {
    const tag = `"${version}"`;
    const known = request.headers["if-none-match"] === tag;
    response.writeHead(known ? 304 : 200, { etag: tag });
    response.end(known ? undefined : rules(version));
  });
  const source = urlSource(url, { everyMs: 20 });
  assert.is(await loaded(source), rules(1));
  assert.is(await loaded(source), rules(1));
  assert.equal(asked, [undefined, '"1"']);
  await reaches(source, 2, () => {
    version = 2;
  });
  await close();
  assert.match(String(await loaded(source)), /fetch failed/);
});

test("a URL without an ETag, with custom header fields and a custom fetch", async () => {
  const calls: unknown[] = [];
  const source = urlSource(new URL("http://config.test/rules"), {
    headers: { authorization: "secret" },
    fetch: async (url, init) => {
      calls.push([url, init?.headers]);
      return new Response(rules(1));
    },
  });
  assert.is(source.name, "http://config.test/rules");
  assert.is(await loaded(source), rules(1));
  assert.is(await loaded(source), rules(1));
  const call = ["http://config.test/rules", { authorization: "secret" }];
  assert.equal(calls, [call, call]);
});

test("a URL: refusals, endless responses and time-outs end in an error", async () => {
  const { url, close } = await serve((request, response) => {
    if (request.url === "/rules/flood") {
      const flood = setInterval(() => response.write("x".repeat(100_000)), 1);
      response.on("close", () => clearInterval(flood));
    } else if (request.url === "/rules/drip") {
      response.write("url");
    } else if (request.url === "/rules/stale") {
      response.writeHead(304).end();
    } else if (request.url !== "/rules/silence") {
      response.writeHead(503).end("no");
    }
  });
  // a busy machine may take long for these two
  assert.is(await loaded(urlSource(url)), `${url} answered 503`);
  assert.match(String(await loaded(urlSource(`${url}/stale`))), /answered 304/);
  const load = (path: string) => loaded(urlSource(`${url}${path}`, { timeoutMs: 150 }));
  assert.match(String(await load("/silence")), /no answer within 150 ms/);
  assert.match(String(await load("/drip")), /no answer within 150 ms/);
  const flood = await loaded(urlSource(`${url}/flood`));
  assert.match(String(flood), /has more than 524288 bytes/);
  const stopping = new AbortController();
  const stopped = loaded(urlSource(`${url}/silence`), stopping.signal);
  stopping.abort(new Error("closed"));
  assert.match(String(await stopped), /closed/);
  await close();
});

test("a key of Redis: a message makes every gateway read it at once", async () => {
  const url = await freshUrl();
  const redis = new Redis(url);
  const ioredis = redis.duplicate();
  const node = createClient({ url });
  await node.connect();
  await redis.set("rules", rules(1));
  let rpu = 1;
  for (const subscriber of [ioredis, node as unknown as RedisSubscriber]) {
    const source = redisSource(redis, "rules", { subscriber, channel: "changed" });
    assert.is(source.name, "redis key rules");
    rpu += 1;
    await reaches(source, rpu, async () => {
      await redis.set("rules", rules(rpu));
      await redis.publish("other", "");
      while ((await redis.publish("changed", "")) === 0) await sleep(5);
    });
  }
  // without a message the key is read every everyMs
  await reaches(redisSource(redis, "rules", { everyMs: 20 }), 9, () =>
    redis.set("rules", rules(9)),
  );
  assert.is(await loaded(redisSource(redis, "none")), "redis key none does not exist");
  await redis.set("huge", "x".repeat(2 ** 19 + 1));
  assert.match(String(await loaded(redisSource(redis, "huge"))), /has more than 524288/);
  redis.disconnect();
  ioredis.disconnect();
  node.destroy();
});

test("a key of Redis that does not answer, and a subscription that fails", async () => {
  const silent = { get: () => new Promise<string>(() => {}) };
  const source = redisSource(silent, "rules", { timeoutMs: 20 });
  assert.is(await loaded(source), "redis key rules: no answer within 20 ms");
  const failing = async () => {
    throw new Error("no");
  };
  const broken = { subscribe: failing, unsubscribe: failing };
  const other = redisSource({ get: async () => rules(1) }, "rules", { subscriber: broken });
  const gateway = await createGateway({ rules: other });
  await gateway.close();
  await sleep(1);
});

test("any function, synchronous or not, called once or every everyMs", async () => {
  assert.is(await loaded(functionSource(() => rules(1))), rules(1));
  const read = readRules(rules(1));
  assert.is(await loaded(functionSource(async () => read)), read);
  const thrown = () => {
    throw new Error("no");
  };
  assert.is(await loaded(functionSource(thrown, { name: "vault" })), "no");
  const silent = functionSource(() => new Promise<string>(() => {}), { timeoutMs: 20 });
  assert.is(await loaded(silent), "function: no answer within 20 ms");
  let rpu = 1;
  await reaches(
    functionSource(() => rules(rpu), { everyMs: 10 }),
    2,
    () => {
      rpu = 2;
    },
  );
});

test("closing ends a load without an answer, and a fetch that ignores its signal times out", async () => {
  const silent = () => new Promise<never>(() => {});
  const ask = async (source: RuleSource) => {
    const closing = new AbortController();
    const asking = loaded(source, closing.signal);
    closing.abort(new Error("closed"));
    return [await asking, await loaded(source, closing.signal)];
  };
  const timeoutMs = 1e9;
  const closed = ["closed", "closed"];
  assert.equal(await ask(functionSource(silent, { timeoutMs })), closed);
  assert.equal(await ask(redisSource({ get: silent }, "rules", { timeoutMs })), closed);
  assert.equal(await ask(urlSource("http://x", { fetch: silent, timeoutMs })), closed);
  const path = join(folder, "closing.yaml");
  await writeFile(path, rules(1));
  assert.equal(await ask(fileSource(path)), closed, "a file still being written to");
  await utimes(path, 0, 0);
  assert.equal(await ask(fileSource(path)), closed, "a complete file");
  const late = urlSource("http://x", { fetch: silent, timeoutMs: 20 });
  assert.is(await loaded(late), "http://x/: no answer within 20 ms");
});

test("a key of Redis: a change before the subscription is active is found", async () => {
  let rpu = 1;
  let stand = () => {};
  const subscribed = new Promise<void>((resolve) => {
    stand = resolve;
  });
  const subscriber = { subscribe: () => subscribed, unsubscribe: async () => {} };
  const source = redisSource({ get: async () => rules(rpu) }, "rules", { subscriber });
  await reaches(source, 2, () => {
    rpu = 2;
    stand();
  });
});

test("a key of Redis: after a gateway closes, others on its connection still receive messages", async () => {
  const url = await freshUrl();
  const redis = new Redis(url);
  const subscriber = redis.duplicate();
  await redis.set("rules", rules(1));
  const source = redisSource(redis, "rules", { subscriber });
  const other = await createGateway({ rules: source });
  await reaches(source, 2, async () => {
    await Promise.all([other.close(), other.close()]);
    await other.close();
    await redis.set("rules", rules(2));
    assert.is(await redis.publish("rules", ""), 1);
  });
  while ((await redis.publish("rules", "")) > 0) await sleep(5);
  redis.disconnect();
  subscriber.disconnect();
});

test("bad arguments are named", () => {
  assert.throws(
    () => urlSource("http://ann:secret@x/"),
    /url must be without user and password: send an/,
  );
  assert.throws(
    () => urlSource("http://x", { fetch: 1 as never }),
    /fetch must be a function, got 1/,
  );
  assert.throws(() => urlSource("http://x", { headers: { "a b": "c" } }), TypeError);
  const get = async () => null;
  const subscriber = {} as RedisSubscriber;
  assert.throws(
    () => redisSource({ get }, "k", { subscriber }),
    /subscriber must have subscribe and/,
  );
  assert.throws(
    () => urlSource("rules.yaml"),
    /url must be an http or https URL, got "rules.yaml"/,
  );
  assert.throws(() => urlSource("ftp://x/y"), /url must be/);
  assert.throws(
    () => urlSource("http://x", { everyMs: 0 }),
    /everyMs must be a number of ms above 0/,
  );
  assert.throws(() => urlSource("http://x", { timeoutMs: 1e10 }), /timeoutMs must be/);
  assert.throws(() => urlSource("http://x", { every: 1 } as object), /options has no "every"/);
  assert.throws(() => redisSource({} as Redis, "k"), /redis must be a client with get\(key\)/);
  assert.throws(() => functionSource("x" as never), /load must be a function, got "x"/);
  assert.throws(() => functionSource(() => "", { everyMs: -1 }), /everyMs must be/);
});

test.run();
