import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { createGateway, readRules } from "../../src/index.ts";
import { hostsOf } from "../../src/match/host.ts";
import { request } from "../support/http/request.ts";

const test = suite("hosts of rules");

const rules = (host: string) =>
  readRules(`{ url: /, host: ${host}, rules: [{ actor: all, unit: second, rpu: 99 }] }`);

async function holds(host: string, headers: Record<string, string>, url = "/"): Promise<boolean> {
  const gateway = await createGateway({ rules: rules(host) });
  const { outcomes } = await gateway.check(request(url, { headers }));
  return outcomes.length > 0;
}

test("a rule holds for its hosts, in every way to write them", async () => {
  const names = [
    ..."api.example.com API.example.com api.example.com:8080 api.example.com. u@api.example.com".split(
      " ",
    ),
    "ap%69.example.com",
    " api.example.com ",
    // frameworks cut these off, and check neither
    ..."api.example.com:x api.example.com:80:80 api.example.com,x api.example.com:x@y".split(" "),
    "api.example.com.:x",
  ];
  for (const host of names) assert.ok(await holds("api.example.com", { host }), host);
  assert.ok(await holds("api.example.com", { ":authority": "api.example.com" }));
  assert.ok(await holds("api.example.com", { host: "x" }, "http://api.example.com/"));
  // a server may go by the header
  assert.ok(await holds("api.example.com", { host: "api.example.com" }, "http://x/"));
  assert.ok(await holds("api.example.com", { ":authority": "api.example.com" }, "http://x/"));
  assert.ok(await holds("api.example.com", { host: "u:p@ap%69.example.com,x" }));
});

test("the host in a target, in every way that a URL parser reads it", async () => {
  const targets =
    "http:///api.example.com/ http:////u@api.example.com:80/ http:api.example.com http:\\\\api.example.com/ //api.example.com/ /\\api.example.com/ /\t/api.example.com/ ///AP%49.example.com?x";
  for (const url of targets.split(" ")) {
    assert.is(new URL(url, "ws://x").hostname, "api.example.com", url);
    assert.ok(await holds("api.example.com", { host: "x" }, url), url);
  }
  for (const url of ["/api.example.com/", "/a//api.example.com/", "/?//api.example.com", "*", ""]) {
    assert.not.ok(await holds("api.example.com", { host: "x" }, url), url);
  }
});

test("a platform that rejects the name of HTTP/2's field", () => {
  const headers = new Headers({ host: "api.example.com" });
  const header = (name: string) => headers.get(name) ?? undefined;
  assert.equal(hostsOf({ ...request("/"), header }), ["api.example.com"]);
});

test("a rule does not hold for other hosts", async () => {
  for (const host of ["example.com", "xapi.example.com", "api.example.com.evil.org", "", ":80"]) {
    assert.not.ok(await holds("api.example.com", { host }), host);
  }
  assert.not.ok(await holds("api.example.com", {}));
});

test("the work for a host is linear in its length, whatever it holds", () => {
  const units = [..."a . , : @ :1 1. a. xn--a. %41 [ [: \xfc".split(" "), " ", "\t"];
  const started = process.cpuUsage().user;
  for (const unit of units) {
    const long = unit.repeat(30_000 / unit.length);
    for (const host of [long, `${long}x`, `x${long}:x`, `u@${long}!`]) {
      hostsOf(request("/", { headers: { host } }));
      hostsOf(request(`http://${host}/`));
    }
  }
  // quadratic work takes 10 s
  assert.ok(process.cpuUsage().user - started < 5e6);
});

test("a star stands for every subdomain, and a list for each of its names", async () => {
  assert.ok(await holds('"*.example.com"', { host: "a.b.example.com" }));
  assert.not.ok(await holds('"*.example.com"', { host: "example.com" }));
  assert.not.ok(await holds('"*.example.com"', { host: "badexample.com" }));
  assert.ok(await holds("[a.org, b.org]", { host: "b.org" }));
});

test("what is no host name is refused", () => {
  for (const host of ["https://x.org", "x.org:80", '"*"', '""', "a..b", "[]"]) {
    assert.throws(() => rules(host), /host.*: found .*, allowed: a host name without a port/, host);
  }
});

test("the host is part of a derived name", () => {
  assert.is(rules("a.org")[0]?.name, "a.org / all per second token bucket");
});

test.run();
