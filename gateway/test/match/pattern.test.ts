import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { createGateway, readRules } from "../../src/index.ts";
import { PathTree } from "../../src/match/tree.ts";
import { request } from "../support/http/request.ts";

const test = suite("patterns");

const tree = new PathTree<string>();
for (const url of ["/", "/users/:id/posts", "/users/{id}", "/*/x", "/files/*"]) tree.add(url, url);
for (const url of ["/", "/login", "/u/:id"]) tree.add(url, `=${url}`, true);

const match = (target: string) => [...(tree.match(target) ?? ["disputed"])].sort();

test("a parameter is one segment, and a path holds for everything below it", () => {
  const rows: [target: string, ...found: string[]][] = [
    ["/users", "/"],
    ["/users/7", "/", "/users/{id}"],
    ["/users/7/likes", "/", "/users/{id}"],
    ["/USERS/J%C3%B6rg/posts/1", "/", "/users/:id/posts", "/users/{id}"],
    ["/users/posts", "/", "/users/{id}"],
    ["/a/x/b", "/", "/*/x"],
    ["/files/a/b", "/", "/files/*"],
    ["http://h/files/a?b", "/", "/files/*"],
    // a router may take the end of the path for an empty segment
    ["/files/", "/", "/files/*"],
  ];
  for (const [target, ...found] of rows) assert.equal(match(target), found, target);
});

test("an exact path does not hold for what is below it", () => {
  const rows: [target: string, ...found: string[]][] = [
    ["/", "/", "=/"],
    ["/?a", "/", "=/"],
    ["/login", "/", "=/login"],
    ["/login/", "/", "=/login"],
    ["/LOGIN?next=/", "/", "=/login"],
    ["/login/help", "/"],
    ["/u/7", "/", "=/u/:id"],
    ["/u/7/", "/", "=/u/:id"],
    ["/u/", "/", "=/u/:id"],
    ["/u/7/x", "/"],
    ["/u/7/x/y", "/"],
  ];
  for (const [target, ...found] of rows) assert.equal(match(target), found, target);
});

test("no trick bypasses an exact path or a parameter", () => {
  const exact = [
    "/login;a/b",
    "/login%3fx",
    "/login/;x",
    "/login%00.html",
    "/login/#",
    "/x/../login",
  ];
  for (const target of exact) assert.ok(match(target).includes("=/login"), target);
  const tricks = [
    ..."/users/a%2fb/posts /users/;x/posts /users/./posts /users//posts /users/%20/posts".split(
      " ",
    ),
    ..."/users/a\\b/posts /users/x%3fy/posts /users/x%23y/posts /users/%00/posts".split(" "),
    ..."/x/../users/a/posts /users/a;b/posts /%2fusers/a/posts /users/a/b/../posts".split(" "),
  ];
  for (const target of tricks) assert.ok(match(target).includes("/users/:id/posts"), target);
  assert.ok(match("/a%2fb").includes("/"), "/a%2fb");
});

async function counted(text: string, ...urls: string[]): Promise<boolean[]> {
  const gateway = await createGateway({ rules: readRules(text) });
  const verdicts = await Promise.all(urls.map((url) => gateway.check(request(url))));
  await gateway.close();
  return verdicts.map(({ outcomes }) => outcomes.length > 0);
}

const RULES = "rules: [{ actor: all, unit: second, rpu: 9 }]";

test("exceptions hold for a path and everything below it", async () => {
  const text = `{ url: /, except: [/health, "/p/:id/public", /caf%C3%A9, /über], ${RULES} }`;
  const free = [
    "/health",
    "/health/",
    "/health/x?y",
    "/health/a%20b",
    "http://h/health",
    "/p/7/public/x",
  ];
  assert.equal(
    await counted(text, ...free),
    free.map(() => false),
  );
  const spelled = ["/caf%C3%A9", "/%C3%BCber"];
  assert.equal(await counted(text, ...spelled), [false, false]);
});

test("an exception does not hold for a target that a server may read in another way", async () => {
  const text = `{ url: /, except: [/health, "/p/:id/public"], ${RULES} }`;
  const tricks = [
    ..."/healthy /Health /%68ealth /health/../admin /health/%2e%2e/admin /health;/admin".split(" "),
    ..."/health/..;/admin /health%2f..%2fadmin /health%2fx /health\\..\\admin //health /health#/x".split(
      " ",
    ),
    ..."/health?/../admin /x/../health /p//public /p/a%2fb/public /p/../public /health%00 health".split(
      " ",
    ),
  ];
  assert.equal(
    await counted(text, ...tricks),
    tricks.map(() => true),
    tricks.join(" "),
  );
});

test("an exception for everything is refused", () => {
  assert.throws(
    () => readRules(`{ url: /, except: /, ${RULES} }`),
    /except: found "\/", allowed: a path below the root/,
  );
});

test("several URLs share one count, and a request counts once", async () => {
  const rules = readRules(
    "{ url: [/a, /a/b, /c], rules: [{ actor: all, unit: day, rpu: 3, algo: W }] }",
  );
  assert.is(rules[0]?.name, "/a,/a/b,/c all per day window");
  const gateway = await createGateway({ rules });
  const left = [];
  for (const url of ["/a", "/a/b", "/c", "/d", "/a"]) {
    const { allowed, outcomes } = await gateway.check(request(url));
    left.push(outcomes[0] ? `${allowed} ${outcomes[0].decision.remaining}` : "none");
  }
  assert.equal(left, ["true 2", "true 1", "true 0", "none", "false 0"]);
  assert.throws(
    () => readRules(`{ url: [/a, b], ${RULES} }`),
    /url\.1: found "b", allowed: a path/,
  );
  assert.throws(
    () => readRules(`{ url: [], ${RULES} }`),
    /url: found an array, allowed: a path.*list/,
  );
});

test("1 000 patterns cost no more than the segments of a path", () => {
  const many = new PathTree<number>();
  for (let i = 0; i < 1000; i++) many.add(`/shop-${i}/:id/x`, i);
  assert.equal(many.match("/shop-7/a/x"), [7]);
  assert.equal(many.match("/shop-7/a%2fb/x"), [7]);
});

test.run();
