import { posix } from "node:path";
import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { runs, suite } from "../../../test/support/suite.ts";
import { PathTree } from "../../src/match/tree.ts";
import { anyText } from "../support/any-text.ts";

const test = suite("matching");

const URLS = ["/", "/sample", "/sample/a", "/other", "/a b", "/café", "/50%25", "/.well-known"];
const tree = new PathTree<string>();
for (const url of URLS) tree.add(url, url);

/** What a disputed target matches: none of the rules is asked, because it is refused. */
const DISPUTED: readonly string[] = ["disputed"];
const matchIn = (among: PathTree<string>, target: string) => [...(among.match(target) ?? DISPUTED)];
const match = (target: string) => matchIn(tree, target);
/** Whether a target does not avoid the rules of a path: they apply, or it is refused. */
const isHeld = (target: string, url: string) => tree.match(target)?.includes(url) !== false;

test("a path is subject to its own rules and those of its parents, by whole segments", () => {
  const rows: [target: string, ...urls: string[]][] = [
    ["/", "/"],
    ["", "/"],
    ["*", "/"],
    ["/sample", "/", "/sample"],
    ["/sample/", "/", "/sample"],
    ["/sample/b", "/", "/sample"],
    ["/sample/a", "/", "/sample", "/sample/a"],
    ["/sample/a/b/c", "/", "/sample", "/sample/a"],
    ["/sample/ab", "/", "/sample"],
    ["/samples", "/"],
    ["/x/sample", "/"],
    ["/sample?x=/other", "/", "/sample"],
    ["/?/sample", "/"],
    ["/.well-known/x", "/", "/.well-known"],
    ["/a%20b", "/", "/a b"],
    ["/caf%C3%A9", "/", "/café"],
    ["/50%25", "/", "/50%25"],
    ["http://example.org/sample/a?x", "/", "/sample", "/sample/a"],
    ["HTTPS://example.org", "/"],
    ["example.org:443", "/"],
  ];
  for (const [target, ...urls] of rows) assert.equal(match(target), urls, target);
});

test("no known trick bypasses a rule", () => {
  const tricks = [
    ..."/SAMPLE /Sample //sample ///sample /./sample /x/../sample /../sample /../../sample /sample/.".split(
      " ",
    ),
    ..."/s%61mple /%73%61%6d%70%6c%65 /%53AMPLE /sample%2f /%2fsample /x%2f..%2fsample /x/%2e%2e/sample".split(
      " ",
    ),
    ..."/%2e/sample /.%2e/sample /x/.%2E/sample /sample%2fx /sample%5cx /%5csample /%5C%5csample".split(
      " ",
    ),
    ..."/sample;a=b /sample;/x /;x/sample /sample;a/b /sample%3bx /sample%00 /sample%00.html /sample#x /sample#/../x".split(
      " ",
    ),
    ..."\\sample /\\sample \\\\x\\sample /sample\\x //x/sample //x//sample /\\x/sample sample ./sample ../sample".split(
      " ",
    ),
    ..."http://x/sample http://x//sample HTTP:\\\\x\\sample http://x/../sample http:///sample".split(
      " ",
    ),
    "  SAMPLE",
    "\x01 http://x/sample",
    "/sam\tple",
    "/sample\n",
    "/sample/%zz",
    "/sample/%ff",
    "/sample/%",
    "/sam%70le/%ff",
    ..."/sample. /sample%20/x /sample%2e%20 /sample;/.. /sample;\\.. /#/../sample /?/../sample".split(
      " ",
    ),
    ..."/sample%3f /sample%23/.. /sample%3f/../.. /sam%00ple /sample%c0%afx /%c0%ae%c0%ae/sample".split(
      " ",
    ),
    ..."http://x%2fsample http://u@x/sample http://u@x$/../sample //u@x/sample //x;/sample".split(
      " ",
    ),
    ..."/x/..;/sample /x/.%2e;a=b/sample /x/..%00/sample /./sample /%20/sample x:/sample".split(
      " ",
    ),
  ];
  for (const trick of tricks) assert.ok(match(trick).includes("/sample"), trick);
  const marks = "%cc%a3".repeat(2000);
  for (const trick of [
    "/cafe%CC%81",
    "/CAFÉ",
    "/caf%c3%89",
    "/caf%e9",
    "/caf\xc3\xa9",
    `/café/${marks}`,
  ]) {
    assert.ok(match(trick).includes("/café"), trick);
  }
});

test("an ambiguous target is subject to the rules of every interpretation, if one path has them all", () => {
  // Express reads this as below /sample, a URL parser as /sample/a
  assert.equal(match("/sample/x/../a"), ["/", "/sample", "/sample/a"]);
  assert.equal(match("/x/../sample"), ["/", "/sample"]);
  assert.equal(match("//x/sample"), ["/", "/sample"]);
  assert.equal(match("//sample/a"), ["/", "/sample", "/sample/a"]);
});

test("a target that means paths with different rules is disputed", () => {
  // Express reads this as below /other, a URL parser as below /sample
  for (const target of ["/other/../sample", "/other/..%2fsample", "//other/sample"]) {
    assert.is(tree.match(target), undefined, target);
  }
});

test("a rule that does not apply to the request makes no target disputed", () => {
  const applies = (url: string) => url !== "/other";
  assert.equal(tree.match("/other/../sample", applies), ["/", "/sample"]);
});

test("a rule that never refuses makes no target disputed, and is left out where it does not fit", () => {
  const watched = new PathTree<string>((url) => url.startsWith("/shadow"));
  for (const url of ["/shadow", "/shadow/a", "/sample", "/shadows"]) watched.add(url, url);
  assert.equal(matchIn(watched, "/shadow/../sample"), ["/sample"]);
  assert.equal(matchIn(watched, "/x/../shadow/a"), ["/shadow", "/shadow/a"]);
  assert.equal(matchIn(watched, "/shadow/../shadows"), ["/shadow"]);
});

test("patterns and paths that one path has are not disputed", () => {
  const mixed = new PathTree<string>();
  const urls = ["/users/:id", "/users/:id/posts", "/:any/me", "/users/me", "/posts/:id"];
  for (const url of urls) mixed.add(url, url);
  const rows: [target: string, ...urls: string[]][] = [
    ["/users/me/posts/", "/users/me", "/users/:id", "/:any/me", "/users/:id/posts"],
    ["/users/./me/posts", "/users/me", "/users/:id", "/:any/me", "/users/:id/posts"],
    // an encoded slash is legitimate in an id: nothing of /posts
    ["/users/a%2fb/posts", "/users/:id", "/users/:id/posts"],
    ["/users/a%2fposts", "/users/:id", "/users/:id/posts"],
    ["/users/7;v=1/posts;v=2", "/users/:id", "/users/:id/posts"],
    ["/users/7./posts", "/users/:id", "/users/:id/posts"],
    ["/users//posts", "/users/:id", "/users/:id/posts"],
    ["/posts/../users/me", "disputed"],
    ["//posts/users/me", "disputed"],
  ];
  for (const [target, ...expected] of rows) {
    assert.equal(matchIn(mixed, target).sort(), expected.sort(), target);
  }
});

test("escaped slashes, parameters and empty segments, which APIs really use, are not disputed", () => {
  const api = new PathTree<string>();
  const urls = ["/projects/:id", "/projects/:id/issues", "/issues", "/files/:path", "/login"];
  for (const url of urls) api.add(url, url);
  const rows: [target: string, ...urls: string[]][] = [
    ["/projects/team%2fapp/issues", "/projects/:id", "/projects/:id/issues"],
    ["/projects//7/issues", "/projects/:id", "/projects/:id/issues"],
    ["/projects/7;v=1/issues", "/projects/:id", "/projects/:id/issues"],
    ["/projects/team%2flogin", "/projects/:id"],
    ["/files/issues%2flogin", "/files/:path"],
    ["/docs//login"],
  ];
  for (const [target, ...expected] of rows) assert.equal(matchIn(api, target), expected, target);
});

test("a target with many unclear segments is subject to the patterns whose segments it contains", () => {
  const mixed = new PathTree<string>();
  for (const url of ["/users/:id/posts", "/posts/:id"]) mixed.add(url, url);
  assert.equal(matchIn(mixed, `${"/;b".repeat(9)}/posts/users`), ["/posts/:id"]);
  assert.equal(matchIn(mixed, `${"/;b".repeat(99)}/posts/x`), ["/posts/:id"]);
  assert.equal(matchIn(mixed, `${"/;b".repeat(99)}/posts/users`), ["disputed"]);
});

test("an unusual but unambiguous path is subject to the rules of its prefixes only", () => {
  const rows: [target: string, ...urls: string[]][] = [
    ["/list;sort=asc/sample", "/"],
    ["/list/a%2fsample", "/"],
    ["/go/http:%2f%2fh%2fsample", "/"],
    ["/x/./sample", "/"],
    ["/x//sample", "/"],
    ["/a%20b/sample?x=../sample", "/", "/a b"],
    ["/b#/sample", "/"],
    ["/b%3f/sample", "/"],
    ["http://example.org//x", "/"],
    ["http://[::1]:80/sample;x=/b", "/", "/sample"],
    ["/x?to=%2Fsample", "/"],
  ];
  for (const [target, ...urls] of rows) assert.equal(match(target), urls, target);
});

test("a target with .. is subject to every rule whose segments it contains", () => {
  assert.equal(match("/x/../sample").sort(), ["/", "/sample"]);
  assert.equal(match("/a/x/../sample").sort(), ["/", "/sample", "/sample/a"]);
  assert.equal(match("/x?/../sample").sort(), ["/", "/sample"]);
  assert.equal(match("/x?a=..&b=./sample"), ["/"]);
});

test("a target is decoded only once", () => {
  assert.equal(match("/%2573ample"), ["/"]);
  assert.equal(match("/x/%252e%252e/sample"), ["/"]);
});

// -- an independent matcher: how each kind of server reads a target --

/** The interpretation of Express, Koa and Fastify: the path as it came, prefixes by expression. */
function literally(target: string, url: string): boolean {
  const path = /^[a-z]+:\/\/[^/]*(.*)$/is.exec(target)?.[1] ?? target;
  const [bare = ""] = path.split("?");
  const prefix = url.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\/$/, "");
  return new RegExp(`^${prefix}(?:/|$)`, "i").test(unescaped(bare));
}

/** The path as `new URL` gives it, for example in fetch handlers. */
function byUrl(target: string, url: string): boolean {
  try {
    const { pathname } = new URL(target, "http://localhost");
    return isBelow(pathname.split("/").map(unescaped).join("/"), url);
  } catch {
    return false;
  }
}

/** The path as file servers see it: decoded, then normalised. */
function byFile(target: string, url: string): boolean {
  const [bare = ""] = target.split(/[?#]/);
  return isBelow(posix.normalize(`/${unescaped(bare)}`), url);
}

function isBelow(path: string, url: string): boolean {
  const folded = path.toLowerCase().replace(/\/+/g, "/");
  return url === "/" || folded === url || folded.startsWith(`${url}/`);
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const piece = fc.constantFrom(
  ..."/|/|/|sample|SAMPLE|s%61mple|a|A|other|..|.|%2e|%2E%2e|%2f|%5c|\\|;|;x=y|?|#|%|%zz|%00|%ff|b|é|%C3%A9|caf|http://h|http://h/|//|:|@| ".split(
    "|",
  ),
);
const targets = fc.oneof(
  fc.array(piece, { maxLength: 12 }).map((all) => `/${all.join("")}`),
  fc.array(piece, { maxLength: 12 }).map((all) => all.join("")),
  anyText,
  fc.webUrl({ withQueryParameters: true, withFragments: true }),
);

test("escaped slashes do not bypass rules on a server that decodes first and resolves no dots", () => {
  for (const target of ["/%2fs%61mple/..%5c", "s%61mple%2f..", "/sample%2f%2e%2e%2fother"]) {
    assert.ok(isHeld(target, "/sample"), target);
  }
});

test("a query within the host does not bypass rules on a server that looks for the first slash", () => {
  for (const target of ["http://h?/sample", "http://h#x/sample?y"]) {
    assert.ok(isHeld(target, "/sample"), target);
  }
});

test("the interpretations of a URL parser with schemes and empty segments are covered", () => {
  for (const target of ["other:/sample", "http:sample", "/sample\\/..", "//x//sample//.."]) {
    assert.ok(isHeld(target, "/sample"), target);
  }
});

test("the interpretation of servers that resolve dots before they decode is covered", () => {
  assert.ok(isHeld("/sample\\a%2f..", "/sample/a"));
});

test("the interpretation of file servers, where a backslash after dots is a letter, is covered", () => {
  assert.ok(isHeld("/%2E%2e/sample/%2E%2e\\", "/sample"));
});

test("property: the rules of every interpretation apply, or the target is disputed", async () => {
  const count = runs(1500);
  let agreed = 0;
  await fc.assert(
    fc.property(targets, (target) => {
      const held = tree.match(target);
      if (held === undefined) return;
      agreed += 1;
      assert.is(new Set(held).size, held.length);
      for (const url of ["/", "/sample", "/sample/a", "/other"]) {
        for (const server of [literally, byUrl, byFile]) {
          if (server(target, url)) assert.ok(held.includes(url), `${server.name}: ${url}`);
        }
      }
    }),
    { numRuns: count },
  );
  assert.ok(agreed > (2 / 3) * count, `${agreed} of ${count}`);
});

test("a plain path is subject to the rules of its prefixes only", async () => {
  const segment = fc.constantFrom("sample", "a", "b", "other", "x.y", "a-b", "~u", "50%25");
  await fc.assert(
    fc.property(fc.array(segment), fc.constantFrom("", "?q=/sample", "?"), (segments, query) => {
      const path = `/${segments.join("/")}`;
      const expected = URLS.filter((url) => isBelow(path, url));
      assert.equal(match(path + query), expected);
    }),
    { numRuns: runs(500) },
  );
});

test("time is linear in the length of a target", () => {
  for (const unit of [
    "/;a",
    "/a;b/..",
    "/%61",
    "/",
    "/..",
    "%2e",
    "%2f",
    "\\",
    ";",
    "%",
    "/a",
    "%c3%a9",
    "http://",
    "//",
  ]) {
    const start = performance.now();
    match(`/${unit.repeat(20_000)}/sample`);
    assert.ok(performance.now() - start < 5000, unit);
  }
});

test("a host that is a segment of a rule is also read as the first segment", () => {
  const tree = new PathTree<string>();
  tree.add("/vault/:id/secret", "pattern");
  tree.add("/vault/secret", "path");
  for (const host of ["vault", "VAULT", "vault.", "vault.."]) {
    assert.equal(tree.match(`x://${host}/7/secret`), ["pattern"], host);
    assert.equal(tree.match(`x://${host}/secret`), ["path"], host);
    assert.ok(tree.match(`x://${host}/%2f/secret`)?.includes("path") !== false, `${host}, slashes`);
  }
  assert.equal(tree.match("x://example.com/7/secret"), []);
});

test.run();
