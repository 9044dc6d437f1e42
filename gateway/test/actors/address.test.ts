import * as fc from "fast-check";
import ipaddr from "ipaddr.js";
import * as assert from "uvu/assert";
import { runs, suite } from "../../../test/support/suite.ts";
import { exemption } from "../../src/actors/exemption.ts";
import { fromAddress, fromHeader } from "../../src/index.ts";
import { anyText } from "../support/any-text.ts";
import { request } from "../support/http/request.ts";

/** Processor time: other work on the machine does not count. */
const cpuMs = () => process.cpuUsage().user / 1000;

const test = suite("addresses");

const socket = fromAddress();
const of = (remoteAddress: string | undefined) => socket(request("/", { remoteAddress }));

test("the socket's address counts: IPv6 by its /56, IPv4-mapped IPv6 as IPv4", () => {
  const rows: [address: string | undefined, key: string | undefined][] = [
    ["192.0.2.1", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["::FFFF:192.0.2.1", "192.0.2.1"],
    ["::ffff:c000:201", "192.0.2.1"],
    ["0:0:0:0:0:ffff:c000:0201", "192.0.2.1"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:0::/56"],
    ["2001:0DB8:0001:0002::", "2001:db8:1:0::/56"],
    ["2001:db8:1:3::1", "2001:db8:1:0::/56"],
    ["::1", "0:0:0:0::/56"],
    ["fe80::1%eth0", "fe80:0:0:0::/56"],
    ["[2001:db8::1]:443", "2001:db8:0:0::/56"],
    ["192.0.2.1:443", "192.0.2.1"],
    [undefined, undefined],
    ["", undefined],
    ["unknown", undefined],
    ["1.2.3", undefined],
    ["0x7f.1", undefined],
    ["010.0.0.1", undefined],
    ["256.0.0.1", undefined],
    ["1".repeat(1000), undefined],
    [`[${":".repeat(100)}]`, undefined],
  ];
  for (const [address, key] of rows) assert.is(of(address), key, address);
});

test("each of many connections keeps its own key, also when its address comes again", () => {
  const actor = fromAddress();
  for (let pass = 0; pass < 2; pass++) {
    for (let i = 0; i < 1500; i++) {
      const address = `192.0.${i >> 8}.${i & 255}`;
      assert.is(actor(request("/", { remoteAddress: `::ffff:${address}` })), address);
    }
  }
});

const behind = (trustedProxies: number, list: string | undefined, field = "x-forwarded-for") => {
  const actor = fromAddress({ trustedProxies, field: field as "forwarded" });
  return actor(request("/", { headers: list === undefined ? {} : { [field]: list } }));
};

test("X-Forwarded-For counts from the right, through stated proxies only", () => {
  const list = "203.0.113.9, 198.51.100.2,198.51.100.3";
  assert.is(behind(0, list), "192.0.2.1");
  assert.is(behind(1, list), "198.51.100.3");
  assert.is(behind(2, list), "198.51.100.2");
  assert.is(behind(3, list), "203.0.113.9");
  assert.is(behind(9, list), "203.0.113.9");
  assert.is(behind(1, undefined), "192.0.2.1");
  assert.is(behind(1, ""), "192.0.2.1");
});

test("a client whose address is hidden counts as the proxy that hides it", () => {
  assert.is(behind(2, "203.0.113.9, unknown, 198.51.100.3"), "198.51.100.3");
  assert.is(behind(1, "203.0.113.9, _hidden"), "192.0.2.1");
  assert.is(behind(2, "203.0.113.9, x, y"), "192.0.2.1");
});

test("Forwarded is read, with quoted values", () => {
  const forwarded = (trustedProxies: number, list: string) =>
    behind(trustedProxies, list, "forwarded");
  assert.is(forwarded(1, "for=203.0.113.9;proto=http"), "203.0.113.9");
  assert.is(forwarded(1, 'For="[2001:db8:1:2::9]:4711"'), "2001:db8:1:0::/56");
  assert.is(forwarded(2, "for=203.0.113.9, for=198.51.100.2;by=192.0.2.7"), "203.0.113.9");
  assert.is(forwarded(1, 'for=1.1.1.1, by="a,b\\",c";for=198.51.100.2'), "198.51.100.2");
  assert.is(forwarded(1, 'for=1.1.1.1,for=198.51.100.2;by="a,b\\",c"'), "198.51.100.2");
  assert.is(forwarded(1, 'proto=https;host="a;for=9.9.9.9";for="198.51.100.2"'), "198.51.100.2");
  assert.is(forwarded(1, "by=198.51.100.2"), "192.0.2.1");
  assert.is(forwarded(1, "for=unknown"), "192.0.2.1");
});

const hostile = fc.oneof(
  anyText,
  fc
    .array(fc.constantFrom(...'" \\ , ; = for= for=" 1.1.1.1 [ ] :: %'.split(" ")))
    .map((all) => all.join("")),
);

test("a client's own elements do not change what the proxies wrote", async () => {
  await fc.assert(
    fc.property(hostile, (forged) => {
      assert.is(behind(1, `${forged}, 198.51.100.3`), "198.51.100.3");
      assert.is(behind(2, `${forged},198.51.100.2, 198.51.100.3`), "198.51.100.2");
      const v6 = 'for="[2001:db8:1:2::9]:1";host="a,b"';
      assert.is(behind(1, `${forged}, ${v6}`, "forwarded"), "2001:db8:1:0::/56");
      assert.is(behind(1, `${forged},for=198.51.100.3`, "forwarded"), "198.51.100.3");
    }),
    { numRuns: runs(500) },
  );
});

test("any claimed address gives a short key, or none", async () => {
  await fc.assert(
    fc.property(fc.oneof(hostile, fc.ipV6(), fc.ipV4Extended()), (text) => {
      const key = of(text);
      assert.ok(key === undefined || /^[0-9a-f.:]{3,21}(\/56)?$/.test(key), key);
    }),
    { numRuns: runs(500) },
  );
  await fc.assert(fc.property(fc.ipV4(), (text) => assert.is(of(text), text)));
});

test("an IPv6 address that is only groups is read as the parser reads it", async () => {
  const groups = fc.array(fc.constantFrom("0", "1", "ffff", "FFFF", "0dB8", "", "12345", "g"), {
    minLength: 2,
    maxLength: 10,
  });
  const pieces = fc.array(fc.constantFrom("0", "ffff", "1:", ":", "::", "12345", "0:", "ffff:"), {
    maxLength: 12,
  });
  const text = fc.oneof(
    fc.ipV6(),
    groups.map((all) => all.join(":")),
    pieces.map((all) => all.join("")),
  );
  await fc.assert(
    fc.property(text, (address) => {
      const isSix = ipaddr.IPv6.isValid(address);
      assert.is(of(address), isSix ? keyOfParsed(ipaddr.process(address)) : undefined, address);
    }),
    { numRuns: runs(5000) },
  );
});

function keyOfParsed(address: ipaddr.IPv4 | ipaddr.IPv6): string {
  if (!("parts" in address)) return address.toString();
  const [a = 0, b = 0, c = 0, d = 0] = address.parts;
  const groups = [a, b, c, d & 0xff00].map((part) => part.toString(16));
  return `${groups.join(":")}::/56`;
}

test("long lists are read in little time", () => {
  const start = cpuMs();
  for (const unit of [",", '"', "\\", '\\"', "1.1.1.1,", "for=", ";for="]) {
    behind(100, unit.repeat(100_000));
    behind(100, unit.repeat(100_000), "forwarded");
  }
  assert.ok(cpuMs() - start < 3000);
});

test("a bad number of proxies and a misspelt option are refused", () => {
  assert.throws(() => fromAddress({ trustedProxies: -1 }), /trustedProxies must be a whole number/);
  assert.throws(() => fromAddress({ trustedProxies: 1.5 }), /got 1.5/);
  assert.throws(() => fromAddress({ field: "x-real-ip" as "forwarded" }), /field must be one of/);
  for (const ipv6Prefix of [0, 129, 56.5, Number.NaN, "56" as unknown as number]) {
    assert.throws(() => fromAddress({ ipv6Prefix }), /ipv6Prefix must be a (whole )?number/);
  }
  assert.throws(() => fromAddress({ proxies: 1 } as object), /fromAddress has no "proxies"/);
  const names = "yes" as unknown as boolean;
  assert.throws(() => fromAddress({ names }), /names must be one of true, false, got "yes"/);
});

test("names and hashes count only where they are wanted, and addresses as before", () => {
  const texts = ["web-1", "#5c1a", "192.0.2.1:80", "2001:db8::1"];
  const keys = (names: boolean) =>
    texts.map((remoteAddress) => fromAddress({ names })(request("/", { remoteAddress })));
  const addresses = ["192.0.2.1", "2001:db8:0:0::/56"];
  assert.equal(keys(true), ["web-1", "#5c1a", ...addresses]);
  assert.equal(keys(false), [undefined, undefined, ...addresses]);
});

const byAddress = (listed: readonly string[]) => {
  const actor = fromAddress();
  const exempt = exemption(listed, actor, true);
  return (remoteAddress: string) => {
    const from = request("/", { remoteAddress });
    return exempt(actor(from) ?? "", from);
  };
};
const own = () => "";

test("exemptions of addresses are addresses or ranges", () => {
  const exempt = byAddress(["192.0.2.0/24", "10.1.2.3", "2001:db8:1::/48", "2001:db8:2:3::1"]);
  const rows: [address: string, exempt: boolean][] = [
    ["192.0.2.77", true],
    ["192.0.3.1", false],
    ["10.1.2.3", true],
    ["10.1.2.4", false],
    ["2001:db8:1:5::9", true],
    ["2001:db8:2:3::1", true],
    ["2001:db8:2:3:0:0:0:1", true],
    ["2001:db8:2:3::2", false],
    ["2001:db8:2:4::1", false],
    ["ann", false],
  ];
  for (const [value, is] of rows) assert.is(exempt(value), is, value);
  const narrow = byAddress(["2001:db8:0:1::5/128", "::ffff:198.51.100.0/120"]);
  assert.ok(narrow("2001:db8:0:1::5"));
  assert.not(narrow("2001:db8:0:1::6"));
  assert.ok(narrow("198.51.100.9"), "an IPv4-mapped range holds for IPv4");
  assert.ok(narrow("::ffff:198.51.100.9"));
  assert.not(narrow("198.51.101.9"));
});

test("a custom actor may return an address or a network: a range applies to what it contains", () => {
  const exempt = exemption(["2001:db8::/32", "2001:dba::1", "192.0.2.0/24"], own, true);
  const rows: [value: string, exempt: boolean][] = [
    ["2001:db8:1:2::3", true],
    ["2001:db8:1:0::/56", true],
    ["2001::/16", false],
    ["2001:dba::1", true],
    ["2001:dba:0:0::/56", false],
    ["192.0.2.1", true],
    ["ann", false],
  ];
  for (const [value, is] of rows) assert.is(exempt(value, request("/")), is, value);
});

test("exemptions of other actors are values", () => {
  const exempts = (listed: readonly string[], isDevice: boolean, value: string) =>
    exemption(listed, own, isDevice)(value, request("/"));
  const named = ["ann", "192.0.2.0/24"];
  assert.equal(
    ["ann", "bob", "192.0.2.1"].map((value) => exempts(named, false, value)),
    [true, false, false],
  );
  assert.ok(exempts(["ann"], true, "ann"));
  assert.not(exempts([], true, "192.0.2.1"));
});

test("a header names an actor, whatever the case of its name", () => {
  const actor = fromHeader("X-API-Key");
  assert.is(actor(request("/", { headers: { "x-api-key": "k" } })), "k");
  assert.is(actor(request("/")), undefined);
});

test.run();
