/** Attacks on addresses: a client that chooses, multiplies or hides its own. */
import * as fc from "fast-check";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { runs, suite } from "../../../test/support/suite.ts";
import { type AddressOptions, createGateway, fromAddress, readRules } from "../../src/index.ts";
import { request } from "../support/http/request.ts";

const test = suite("attacks: addresses and what proxies forward");

const forwarded = (list: string, trustedProxies = 1) =>
  fromAddress({ trustedProxies, field: "forwarded" })(
    request("/", { headers: { forwarded: list } }),
  );
const PROXY = "192.0.2.1";

test("text in a quoted string of Forwarded is not a parameter", () => {
  for (const [list, address] of [
    ['host="x;for=6.6.6.6;b";for=1.2.3.4', "1.2.3.4"],
    ['for=1.2.3.4;host="x;for=6.6.6.6;b"', "1.2.3.4"],
    ['host="x\\";for=6.6.6.6;b";for=1.2.3.4', "1.2.3.4"],
    ['host="x\\\\";for=1.2.3.4', "1.2.3.4"],
    ['host="x,for=6.6.6.6";for=1.2.3.4', "1.2.3.4"],
    ['host="x\\",for=6.6.6.6";for=1.2.3.4', "1.2.3.4"],
    ['for="1.2.3\\.4"', "1.2.3.4"],
    ["host=x;;for=1.2.3.4;", "1.2.3.4"],
    ["xfor=6.6.6.6;for=1.2.3.4", "1.2.3.4"],
    ["by=for=6.6.6.6;for=1.2.3.4", "1.2.3.4"],
  ]) {
    assert.is(forwarded(list as string), address, list);
  }
});

test("an element that names two addresses, or is malformed, names none", () => {
  for (const list of [
    "for=1.2.3.4;for=6.6.6.6",
    "for=1.2.3.4;host=x;For=6.6.6.6",
    'for="1.2.3.4',
    'for=1.2.3.4"',
    "for 1.2.3.4",
    "for=",
    'for=""',
    "for=unknown",
    "for=_hidden",
    'for="_hidden:_port"',
    "",
    ";",
    "=",
  ]) {
    assert.is(forwarded(list), PROXY, list);
  }
});

test("ports (obfuscated or not), brackets and zones do not make another client", () => {
  const actor = fromAddress({ ipv6Prefix: 128 });
  const of = (remoteAddress: string) => actor(request("/", { remoteAddress }));
  assert.is(forwarded('for="1.2.3.4:80"'), "1.2.3.4");
  assert.is(forwarded('for="1.2.3.4:_x.y-z"'), "1.2.3.4");
  assert.is(forwarded('for="[2001:db8::1]:_x"'), "2001:db8:0:0::/56");
  assert.is(forwarded('for="[::ffff:1.2.3.4]:80"'), "1.2.3.4");
  assert.is(of("fe80::1%eth0"), of("fe80::1%eth1"));
  assert.is(of("2001:DB8::0001"), of("2001:db8:0:0:0:0:0:1"));
  assert.is(of("::ffff:1.2.3.4"), "1.2.3.4");
  assert.is(of("::ffff:102:304"), "1.2.3.4");
});

test("whatever a client writes, the address that the proxy wrote counts", async () => {
  const piece = fc.constantFrom(...'" \\ , ; = for= for=" 6.6.6.6 host="x [ ] :: \t'.split(" "));
  const forged = fc.array(piece).map((pieces) => pieces.join(""));
  const quoted = forged.map((text) => text.replace(/["\\]/g, "\\$&"));
  await fc.assert(
    fc.property(forged, quoted, (before, host) => {
      assert.is(forwarded(`${before}, host="${host}";for=1.2.3.4`), "1.2.3.4");
      assert.is(forwarded(`${before},for=1.2.3.4;host="${host}";proto=http`), "1.2.3.4");
    }),
    { numRuns: runs(1000) },
  );
});

test("the work for a field is linear in its length, whatever it holds", () => {
  const units = [
    ",",
    '"',
    "\\",
    '\\"',
    ";",
    "=",
    " ",
    "a=",
    "for=",
    ";for=1",
    'a="',
    "[",
    "::",
    "1.",
  ];
  for (const unit of units) {
    const long = unit.repeat(runs(100_000, 30_000));
    const start = process.cpuUsage().user;
    for (const proxies of [1, 2, 1000]) {
      forwarded(long, proxies);
      forwarded(`for=1.2.3.4;host="${long}`, proxies);
      forwarded(`for=1.2.3.4;a${long}"`, proxies);
      const actor = fromAddress({ trustedProxies: proxies });
      actor(request("/", { headers: { "x-forwarded-for": long } }));
    }
    // quadratic work would take minutes
    assert.ok(process.cpuUsage().user - start < 5e6, JSON.stringify(unit));
  }
});

test("quotes in X-Forwarded-For do not hide a comma", () => {
  const actor = fromAddress({ trustedProxies: 2 });
  const of = (list: string) => actor(request("/", { headers: { "x-forwarded-for": list } }));
  assert.is(of('"6.6.6.6, 1.2.3.4, 5.6.7.8"'), "1.2.3.4");
  assert.is(of('6.6.6.6, "x, 5.6.7.8'), "5.6.7.8");
});

const passed = async (options: AddressOptions, address: (i: number) => string) => {
  const gateway = await createGateway({
    rules: readRules("url: /\nrules: [{ actor: device, unit: day, rpu: 1 }]"),
    clock: new FakeClock(),
    ...options,
  });
  let count = 0;
  for (let i = 0; i < 65_536; i += 8) {
    const { allowed } = await gateway.check(request("/", { remoteAddress: address(i) }));
    if (allowed) count += 1;
  }
  return count;
};

test("the networks of an IPv6 customer are one client: a /56 by default, another prefix by option", async () => {
  const within = (i: number) => `2001:db8:1:${i.toString(16)}::1`;
  assert.is(await passed({}, within), 256, "a /48 is 256 networks");
  assert.is(await passed({ ipv6Prefix: 48 }, within), 1);
  assert.is(await passed({ ipv6Prefix: 64 }, within), 65_536 / 8);
  assert.is(await passed({}, (i) => `2001:db8:1:2:${i.toString(16)}::1`), 1);
});

test("each prefix keeps its number of bits, and its keys are distinct texts", () => {
  const of = (ipv6Prefix: number, remoteAddress: string) =>
    fromAddress({ ipv6Prefix })(request("/", { remoteAddress }));
  const address = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff";
  const keys: Record<number, string> = {
    1: "0::/1",
    3: "2000::/3",
    32: "2001:db8::/32",
    48: "2001:db8:ffff::/48",
    56: "2001:db8:ffff:ff00::/56",
    63: "2001:db8:ffff:fffe::/63",
    64: "2001:db8:ffff:ffff::/64",
    112: "2001:db8:ffff:ffff:ffff:ffff:ffff::/112",
    127: "2001:db8:ffff:ffff:ffff:ffff:ffff:fffe/127",
    128: `${address}/128`,
  };
  for (const [prefix, key] of Object.entries(keys)) assert.is(of(Number(prefix), address), key);
  assert.is(of(8, "192.0.2.1"), "192.0.2.1", "IPv4 has no prefix");
  assert.is(of(64, "fe80::1%eth0"), "fe80:0:0:0::/64");
});

test("the prefix applies to the default device, or to your own device actor", async () => {
  const rules = readRules("[]");
  for (const [options, message] of [
    [{ ipv6Prefix: 0 }, /ipv6Prefix must be a whole number from 1 to 128, got 0/],
    [{ ipv6Prefix: 64, actors: { device: fromAddress() } }, /ipv6Prefix is for the default device/],
  ] as const) {
    try {
      await createGateway({ rules, ...options });
      assert.unreachable();
    } catch (error) {
      assert.match(String(error), message);
    }
  }
});

test("an exempt IPv6 address does not exempt its neighbours", async () => {
  const gateway = await createGateway({
    rules: readRules(
      'url: /\nrules: [{ actor: device, unit: day, rpu: 1, exempt: ["2001:db8::1", "2001:db8:1::/64"] }]',
    ),
    clock: new FakeClock(),
    trustedProxies: 1,
  });
  const limited = async (address: string) => {
    const asked = request("/", { headers: { "x-forwarded-for": address } });
    return (await gateway.check(asked)).outcomes.length > 0;
  };
  assert.is(await limited("2001:db8::1"), false);
  assert.is(await limited("[2001:db8:0:0:0::1]:443"), false);
  assert.is(await limited("2001:db8::2"), true);
  assert.is(await limited("2001:db8:0:1::1"), true);
  assert.is(await limited("2001:db8:1::77"), false);
  assert.is(await limited("2001:db8:1:1::77"), true);
});

async function warnings(options: AddressOptions, lists: readonly (string | undefined)[]) {
  const seen: string[] = [];
  const listen = (warning: Error & { code?: string }) => seen.push(`${warning.code}`);
  process.on("warning", listen);
  const actor = fromAddress(options);
  const { field = "x-forwarded-for" } = options;
  for (const list of lists) {
    actor(request("/", { headers: list === undefined ? {} : { [field]: list } }));
  }
  await new Promise((resolve) => setImmediate(resolve));
  process.off("warning", listen);
  return seen;
}

test("a forwarded address that is not expected is a warning, once, and so is one that is missing", async () => {
  const none = (count: number) => Array<undefined>(count).fill(undefined);
  const unexpected = ["SMOOTH_LIMITER_UNTRUSTED_PROXY"];
  assert.equal(await warnings({}, ["1.2.3.4", "1.2.3.4"]), unexpected);
  assert.equal(await warnings({ trustedProxies: 0 }, [undefined, "1.2.3.4"]), unexpected);
  assert.equal(await warnings({ field: "forwarded" }, ["for=1.2.3.4"]), unexpected);
  assert.equal(await warnings({}, [...none(1000), "1.2.3.4"]), [], "no proxy is that rare");
  const missing = ["SMOOTH_LIMITER_MISSING_PROXY"];
  assert.equal(await warnings({ trustedProxies: 1 }, none(100)), missing);
  assert.equal(await warnings({ trustedProxies: 1 }, none(19)), []);
  assert.equal(await warnings({ trustedProxies: 1 }, [...none(5), "1.2.3.4", ...none(100)]), []);
});

test("without process.emitWarning there is no warning", async () => {
  const { emitWarning } = process;
  process.emitWarning = undefined as unknown as typeof emitWarning;
  try {
    assert.equal(await warnings({}, ["1.2.3.4"]), []);
  } finally {
    process.emitWarning = emitWarning;
  }
});

test.run();
