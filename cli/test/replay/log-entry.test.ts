import * as fc from "fast-check";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { seemsForwarded } from "../../src/replay/log-client.ts";
import { DEFAULT_FIELDS, type LogEntry, readLine } from "../../src/replay/log-entry.ts";

const test = suite("lines of access logs");

const isEntry = (read: ReturnType<typeof readLine>): read is LogEntry => "atMs" in read;

const read = (line: string) => {
  const entry = readLine(line, DEFAULT_FIELDS);
  assert.ok(isEntry(entry), JSON.stringify(entry));
  const { atMs, method, url, remoteAddress, isCoarse, actors } = entry as LogEntry;
  return [new Date(atMs).toISOString(), method, url, remoteAddress, actors.account, isCoarse];
};

const json = (fields: object) => read(JSON.stringify(fields));

test("the combined and the common format", () => {
  const line = '192.0.2.1 - ann [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.0" 200 2326';
  const expected = ["2000-10-10T20:55:36.000Z", "GET", "/a?b=c", "192.0.2.1", "ann", true];
  assert.equal(read(line), expected);
  assert.equal(read(`${line} "http://example.com/" "Mozilla/4.08 [en] \\"x\\""`), expected);
});

test("names with blanks, no user, no protocol, quotes in the target", () => {
  const rest = '[01/Jan/2024:00:00:00 +0530] "POST /a\\"b HTTP/1.1" 200 1';
  assert.equal(read(`::1 - - ${rest}`), [
    "2023-12-31T18:30:00.000Z",
    "POST",
    '/a\\"b',
    "::1",
    undefined,
    true,
  ]);
  assert.is(read(`::1 - ann b [c ${rest}`)[4], "ann b [c");
  assert.is(read('::1 - - [01/Jan/2024:00:00:00 +0000] "GET /old" 200 1')[2], "/old");
});

test("a line that is not a request: its column, and what is missing", () => {
  for (const [line, column, message] of [
    ["nonsense", 1, /no address/],
    ["a b", 3, /no identity and a user|no/],
    ["a - - nothing", 14, /no time in brackets/],
    ['a - - [10/Oct/2000:13:55:36 -0700] "\\x16\\x03"', 35, /no request/],
    ['a - - [10/Okt/2000:13:55:36 -0700] "GET / HTTP/1.1"', 8, /no time such as/],
    ['a - - [yesterday] "GET / HTTP/1.1"', 8, /no time such as/],
    ["{", undefined, /no JSON/],
    ['{"url": "/"}', 1, /no time in time, timestamp/],
    ['{"time": "soon", "url": "/"}', 1, /no time/],
    ['{"time": {}, "url": "/"}', 1, /no time/],
    ['{"time": 1}', 1, /no URL in url/],
  ] as const) {
    const unread = readLine(line, DEFAULT_FIELDS);
    assert.not.ok(isEntry(unread), line);
    if (isEntry(unread)) continue;
    assert.match(unread.message, message);
    // which engines tell in different ways
    if (column !== undefined) assert.is(unread.column, column, line);
  }
});

test("a virtual host in front of the client, and ports behind addresses", () => {
  const rest = '[01/Jan/2024:00:00:00 +0000] "GET / HTTP/1.1" 200 1';
  const rows: [head: string, address: string | undefined, account?: string][] = [
    ["example.com:80 192.0.2.1 - -", "192.0.2.1"],
    ["example.com:443 2001:db8::1 - ann", "2001:db8::1", "ann"],
    ["example.com 192.0.2.1 - ann b", "192.0.2.1", "ann b"],
    ["10.0.0.5:80 192.0.2.1 - -", "192.0.2.1"],
    ["0.003 192.0.2.1 - ann", "192.0.2.1", "ann"],
    ["Jan 12 00:00:00 web1 nginx: 192.0.2.1 - -", "192.0.2.1"],
    ["192.0.2.1:51234 - -", "192.0.2.1"],
    ["[2001:db8::1]:51234 - -", "2001:db8::1"],
    ["192.0.2.1 - ann b c", "192.0.2.1", "ann b c"],
    ["client.example.com - -", "client.example.com"],
    ["a3f9c2 identity ann", "a3f9c2", "ann"],
    ["- - -", undefined],
  ];
  for (const [head, address, account] of rows) {
    const [, , , remoteAddress, user] = read(`${head} ${rest}`);
    assert.equal([remoteAddress, user], [address, account], head);
  }
});

test("a line whose client is in doubt is rejected", () => {
  const rest = '[01/Jan/2024:00:00:00 +0000] "GET / HTTP/1.1" 200 1';
  for (const [head, says] of [
    ["203.0.113.1, 10.0.0.1 - -", /found several addresses, allowed: one/],
    ["203.0.113.1,10.0.0.1 - -", /found several addresses/],
    ["unknown, 203.0.113.1 - -", /found several addresses/],
    ['"203.0.113.1, 10.0.0.1" 10.0.0.2 - -', /found several addresses/],
    ["203.0.113.1 10.0.0.1 - -", /found several addresses/],
    ["10.0.0.5:80 192.0.2.1 192.0.2.2 -", /found several addresses/],
    ["example.com - 192.0.2.1", /found an address behind the first field/],
    ["example.com 192.0.2.1 -", /found an address behind the first field/],
    ["example.com:80 - -", /found a name with a port/],
    ["example.com:80 client.example.org - -", /found a name with a port/],
  ] as const) {
    const unread = readLine(`${head} ${rest}`, DEFAULT_FIELDS);
    assert.not.ok(isEntry(unread), head);
    if (!isEntry(unread)) assert.match(unread.message, says, head);
  }
  for (const address of ["203.0.113.1, 10.0.0.1", "example.com:80"]) {
    const line = JSON.stringify({ time: 1, url: "/", remote_addr: address });
    assert.not.ok(isEntry(readLine(line, DEFAULT_FIELDS)), address);
  }
  assert.is(json({ time: 1, url: "/", ip: "[::1]:80" })[3], "::1");
});

test("a forwarded-for list: the trusted proxies decide which address counts", () => {
  const rest = '[01/Jan/2024:00:00:00 +0000] "GET / HTTP/1.1" 200 1';
  const rows: [line: string, proxies: number, address: string | undefined, account?: string][] = [
    [`203.0.113.1, 10.0.0.1 - - ${rest}`, 1, "10.0.0.1"],
    [`203.0.113.1, 10.0.0.1 - - ${rest}`, 2, "203.0.113.1"],
    [`203.0.113.1,10.0.0.1 - ann b ${rest}`, 2, "203.0.113.1", "ann b"],
    // what the client wrote itself is further to the left
    [`evil, 203.0.113.1 - - ${rest}`, 1, "203.0.113.1"],
    [`a "b" c, 203.0.113.1 - - ${rest}`, 1, "203.0.113.1"],
    [`203.0.113.9, 203.0.113.1, 10.0.0.1 - - ${rest}`, 2, "203.0.113.1"],
    // a proxy that hides its client counts itself
    [`unknown, 10.0.0.1 - - ${rest}`, 2, "10.0.0.1"],
    [`203.0.113.1 - - ${rest}`, 2, "203.0.113.1"],
    [`example.com:443 203.0.113.1, 10.0.0.1 - ann ${rest}`, 2, "203.0.113.1", "ann"],
    [`[2001:db8::1]:4711, 10.0.0.1:80 - - ${rest}`, 2, "2001:db8::1"],
    [`"203.0.113.1, 10.0.0.1" - ann ${rest}`, 2, "203.0.113.1", "ann"],
    [`10.0.0.5 "203.0.113.1, 10.0.0.1" - - ${rest}`, 1, "10.0.0.1"],
    [`10.0.0.5 "-" - - ${rest}`, 1, "10.0.0.5"],
    [`"-" - - ${rest}`, 1, undefined],
    [`"203.0.113.1" - - ${rest}`, 1, "203.0.113.1"],
    [`203.0.113.1,10.0.0.1 - - ${rest}`, 1, "10.0.0.1"],
    // no lists: a user with a comma, a name, an address
    [`192.0.2.1 - Smith, John Q X ${rest}`, 1, "192.0.2.1", "Smith, John Q X"],
    [`client.example.com - - ${rest}`, 1, "client.example.com"],
    // the last field of nginx's format "main"
    [`10.0.0.5 - ann ${rest} "-" "curl" "203.0.113.1, 10.0.0.1"`, 2, "203.0.113.1", "ann"],
    [`10.0.0.5 - - ${rest} "-" "a \\"b\\"" "203.0.113.1"`, 1, "203.0.113.1"],
    [`10.0.0.5 - - ${rest} "-" "curl" "-"`, 1, "10.0.0.5"],
    [`10.0.0.5 - - ${rest} "-" "curl" "203.0.113.1"`, 0, "10.0.0.5"],
  ];
  for (const [line, proxies, address, account] of rows) {
    const entry = readLine(line, DEFAULT_FIELDS, proxies);
    assert.ok(isEntry(entry), line);
    const { remoteAddress, actors } = entry as LogEntry;
    assert.equal([remoteAddress, actors.account], [address, account], `${proxies}: ${line}`);
  }
  for (const line of [`203.0.113.1, hidden - - ${rest}`, `203.0.113.1 10.0.0.1 - - ${rest}`]) {
    const unread = readLine(line, DEFAULT_FIELDS, 1);
    assert.match((unread as { message: string }).message, /found several addresses/, line);
  }
});

test("a forwarded-for list in JSON, as text or as an array", () => {
  const address = (data: object, proxies: number) => {
    const line = JSON.stringify({ time: 1, url: "/", ...data });
    return (readLine(line, DEFAULT_FIELDS, proxies) as LogEntry).remoteAddress;
  };
  const list = "203.0.113.1, 10.0.0.1";
  assert.is(address({ remote_addr: list }, 2), "203.0.113.1");
  assert.is(address({ remote_addr: "10.0.0.5", http_x_forwarded_for: list }, 2), "203.0.113.1");
  assert.is(address({ remote_addr: "10.0.0.5", http_x_forwarded_for: list }, 0), "10.0.0.5");
  assert.is(address({ remote_addr: "10.0.0.5", http_x_forwarded_for: "-" }, 1), "10.0.0.5");
  const caddy = { remote_ip: "10.0.0.5", headers: { "X-Forwarded-For": ["203.0.113.1", list] } };
  assert.is(address({ request: caddy }, 1), "10.0.0.1");
  assert.is(address({ req: { headers: { "x-forwarded-for": list } } }, 2), "203.0.113.1");
});

test("a date that does not exist is not parsed", () => {
  const clf = (time: string) =>
    readLine(`192.0.2.1 - - [${time}] "GET / HTTP/1.1" 200 1`, DEFAULT_FIELDS);
  for (const time of [
    ..."31/Feb/2024:00:00:00 +0000|29/Feb/2023:00:00:00 +0000|00/Jan/2024:00:00:00 +0000".split(
      "|",
    ),
    ..."32/Jan/2024:00:00:00 +0000|01/Jan/2024:24:00:00 +0000|01/Jan/2024:00:60:00 +0000".split(
      "|",
    ),
    ..."01/Jan/2024:00:00:61 +0000|01/Jan/2024:00:00:00 +9900|01/Jan/2024:00:00:00 +0060".split(
      "|",
    ),
    ..."01/Anf/2024:00:00:00 +0000|01/Jan/0099:00:00:00 +0000".split("|"),
  ]) {
    const unread = clf(time);
    assert.not.ok(isEntry(unread), time);
    if (!isEntry(unread)) assert.match(unread.message, /found no time such as/);
  }
  assert.ok(isEntry(clf("29/Feb/2024:23:59:60 -0930")));
  for (const time of [
    ..."2023-02-31T00:00:00Z|2023-02-29|2023-13-01T00:00:00Z|2023-00-10|2023/02/30 00:00:00".split(
      "|",
    ),
    ..."Tue, 31 Feb 2023 00:00:00 GMT|31 Jun 2023 00:00:00 GMT|soon 5|11/14/2023|x 2023-01-01".split(
      "|",
    ),
  ]) {
    const line = JSON.stringify({ time, url: "/" });
    assert.not.ok(isEntry(readLine(line, DEFAULT_FIELDS)), time);
  }
  assert.is(json({ time: "2024/02/29 00:00:00 GMT", url: "/" })[0], "2024-02-29T00:00:00.000Z");
});

test("JSON of servers, by the names that they use", () => {
  const at = "2023-11-14T22:13:20.000Z";
  assert.equal(
    json({
      time_iso8601: "2023-11-14T22:13:20+00:00",
      remote_addr: "192.0.2.1",
      remote_user: "ann",
      request: "GET /n?x HTTP/2.0",
    }),
    [at, "GET", "/n?x", "192.0.2.1", "ann", true],
  );
  assert.equal(
    json({ ts: 1_700_000_000.25, request: { remote_ip: "::1", method: "PUT", uri: "/c" } }),
    ["2023-11-14T22:13:20.250Z", "PUT", "/c", "::1", undefined, false],
  );
  assert.equal(
    json({
      time: 1_700_000_000_000,
      req: { method: "GET", url: "/p", remoteAddress: "::2" },
      user: 7,
    }),
    [at, "GET", "/p", "::2", "7", false],
  );
  assert.equal(json({ "req.url": "/dots", time: "14/Nov/2023:22:13:20 +0000", account: "-" }), [
    at,
    "GET",
    "/dots",
    undefined,
    undefined,
    true,
  ]);
});

test("times in all units, and which of them are whole seconds", () => {
  for (const [time, isCoarse] of [
    [1_700_000_000, true],
    ["1700000000", true],
    [1_700_000_000_000, false],
    [1_700_000_000_000_000, false],
    [1.7e18, false],
    ["1700000000.000", false],
    ["2023-11-14T22:13:20Z", true],
    ["2023-11-14T22:13:20.000Z", false],
    ["Tue, 14 Nov 2023 22:13:20 GMT", true],
  ] as const) {
    const [at, , , , , coarse] = json({ time, url: "/" });
    assert.equal([at, coarse], ["2023-11-14T22:13:20.000Z", isCoarse], String(time));
  }
});

test("a date that does not exist is rejected; blanks around JSON do not matter", () => {
  for (const time of ["1e25", "1e999", "-1e30"]) {
    const entry = readLine(`{"time":${time},"url":"/"}`, DEFAULT_FIELDS);
    assert.match((entry as { message: string }).message, /found no time in time, timestamp/, time);
  }
  assert.is(read('\t {"time":8.64e21,"url":"/"}\r')[0], "+275760-09-13T00:00:00.000Z");
});

test("fields of one's own, and what is inherited is none", () => {
  const fields = {
    ...DEFAULT_FIELDS,
    actors: { tenant: ["org.id"], x: ["toString", "a.constructor", "b.c"] },
  };
  const entry = readLine('{"time":1,"url":"/","org":{"id":"t1"},"a":{},"b":1}', fields) as LogEntry;
  assert.equal(entry.actors, { tenant: "t1", x: undefined });
});

test("whatever a line holds, it is a request or not, in time", async () => {
  const pieces = fc.constantFrom(
    "{",
    "}",
    '"',
    "[",
    "]",
    "time",
    ":",
    " ",
    "- ",
    "\\",
    "10/Oct/2000:13:55:36 -0700",
    "GET /",
    "é",
    "\0",
  );
  const text = fc.oneof(
    fc.string(),
    fc.array(pieces, { maxLength: 400 }).map((all) => all.join("")),
  );
  await fc.assert(
    fc.property(text, (line) => {
      const entry = readLine(line, DEFAULT_FIELDS);
      if (isEntry(entry)) assert.ok(Number.isFinite(entry.atMs));
      else assert.ok(entry.column >= 1 && entry.message.length > 0);
    }),
  );
  const started = performance.now();
  const parts = [" ", ",", ", ", "1:", '" "', '"', "[", "\\", "a [", 'a "GET /', "] ", '- [x] "'];
  for (const part of parts) {
    readLine(`1 - ${part.repeat(30_000)}`, DEFAULT_FIELDS);
    readLine(`1 - - [x] "GET ${part.repeat(30_000)}`, DEFAULT_FIELDS);
    readLine(`1, ${part.repeat(30_000)}, 1 - - [x] "GET /" 200`, DEFAULT_FIELDS, 2);
    seemsForwarded(`1 - - [x] "GET /" 200 "${part.repeat(30_000)}`);
    seemsForwarded(`1 - - [x] "GET /" 200 "-" "${part.repeat(60_000)}"`);
  }
  assert.ok(performance.now() - started < 5000);
});

test.run();
