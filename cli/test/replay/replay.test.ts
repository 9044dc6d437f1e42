import { existsSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import * as assert from "uvu/assert";
import { runs, suite } from "../../../test/support/suite.ts";
import { cli, inFolder } from "../support/run.ts";

const test = suite("replay");

const START = Date.UTC(2026, 0, 1);

interface Line {
  readonly [name: string]: unknown;
}

/** JSON lines, `atMs` after the start. */
const jsonl = (lines: readonly (readonly [atMs: number, line?: Line])[]) =>
  lines
    .map(([atMs, line]) =>
      JSON.stringify({ time: START + atMs, url: "/", ip: "192.0.2.1", ...line }),
    )
    .join("\n");

const every = (ms: number, count: number) =>
  jsonl(Array.from({ length: count }, (_, i) => [i * ms] as const));

// biome-ignore lint/suspicious/noExplicitAny: what JSON says is looked at field by field
type Json = any;

async function replayed(
  rules: string,
  log: string | Buffer | readonly string[],
  ...args: string[]
): Promise<Json> {
  return inFolder({ "rules.yaml": rules }, async (path) => {
    const { code, out, err } = await cli(["replay", path("rules.yaml"), "-", "--json", ...args], {
      stdin: log,
    });
    assert.is(code, 0, err);
    return JSON.parse(out);
  });
}

const rule = (fields: string) =>
  `url: /\nrules: [{ actor: all, unit: second, name: r, ${fields} }]`;

test("an exemption holds for one IPv6 address, not for its network, and for a name", async () => {
  const rules = `url: /
rules: [{ actor: device, unit: day, rpu: 1, name: r, exempt: ["2001:db8::1", web-1] }]`;
  const lines = ["2001:db8::1", "2001:db8::2", "web-1", "web-2"].flatMap((ip, i) => [
    [i, { ip }] as const,
    [i, { ip }] as const,
  ]);
  const { report } = await replayed(rules, jsonl(lines));
  assert.equal([report.requests, report.passed, report.refused], [8, 6, 2]);
});

test("rules for connections and bytes are left out, and the report says so", () =>
  inFolder(
    {
      "rules.yaml":
        "url: /\nrules: [{ actor: all, unit: second, rpu: 2 }, { actor: all, connections: 1 }, { bytesPerSecond: 1k }]",
    },
    async (path) => {
      const { code, out, err } = await cli(["replay", path("rules.yaml"), "-", "--json"], {
        stdin: every(100, 5),
      });
      assert.is(code, 0);
      assert.is(JSON.parse(out).report.rules.length, 1);
      assert.match(err, /2 rules for connections or bytes not played: a log does not contain how/);
    },
  ));

test("passed and refused, by the algorithm's own law", async () => {
  const { report, lines, unread, late } = await replayed(rule("rpu: 2"), every(100, 21));
  assert.equal([lines, unread, late], [21, 0, 0]);
  const [{ points, actors, ...only }] = report.rules;
  // two at once, and two more in each of the two seconds
  assert.equal(
    { requests: only.requests, passed: only.passed, refused: only.refused, waited: only.waited },
    { requests: 21, passed: 6, refused: 15, waited: 0 },
  );
  assert.equal([report.requests, report.passed, report.refused], [21, 6, 15]);
  assert.equal([report.firstMs, report.lastMs], [START, START + 2000]);
  assert.equal(points.counts.passed, [3, 2, 1]);
  assert.equal(points.counts.refused, [7, 8, 0]);
  assert.equal([points.startMs, points.stepMs], [START, 1000]);
  assert.equal(actors, []);
});

test("a leaky bucket: which requests wait, and how long", async () => {
  const { report } = await replayed(rule("rpu: 10, algo: LB, burst: 3"), every(0, 6));
  const [only] = report.rules;
  assert.equal([only.passed, only.waited, only.refused], [1, 3, 2]);
  assert.equal(only.wait, { meanMs: 200, longestMs: 300 });
  assert.equal([report.passed, report.waited, report.refused], [1, 3, 2]);
  assert.is(only.mostInWindow, 4);
});

test("a line lets go at its own pace: the worst second counts when requests pass", async () => {
  const { report } = await replayed(rule("rpu: 10, algo: LB, burst: 30"), every(0, 31));
  const [only] = report.rules;
  assert.equal([only.passed, only.waited], [1, 30]);
  assert.is(only.mostInWindow, 10);
});

test("the double burst of a fixed window is seen", async () => {
  const times = Array.from({ length: 20 }, (_, i) => [i < 10 ? 900 : 1100] as const);
  const log = jsonl([[0], ...times].map(([atMs]) => [atMs ?? 0] as const));
  const worst = async (algo: string) =>
    (await replayed(rule(`rpu: 10, algo: ${algo}`), log)).report.rules[0].mostInWindow;
  assert.is(await worst("W"), 20 - 1);
  assert.is(await worst("SL"), 10);
});

test("a request that another rule refuses neither passes nor is charged; a shadow refuses none", async () => {
  const text = `url: /
rules:
  - { actor: all, unit: day, rpu: 2, name: strict }
  - { actor: all, unit: day, rpu: 5, name: wide, algo: W }
  - { actor: all, unit: day, rpu: 1, name: dark, mode: shadow, algo: W }
`;
  const { report } = await replayed(text, every(1, 8));
  const [strict, wide, dark] = report.rules;
  assert.equal([strict.passed, strict.refused, strict.refusedElsewhere], [2, 6, 0]);
  assert.equal([wide.passed, wide.refused, wide.refusedElsewhere], [2, 0, 6]);
  assert.equal([dark.passed, dark.refused, dark.mostInWindow], [1, 7, 2]);
  assert.is(report.refused, 6);
});

test("a request whose target servers read differently is refused, and does not count as one without a rule", async () => {
  const ofUrl = (url: string) => `- url: ${url}\n  rules: [{ actor: all, unit: day, rpu: 9 }]\n`;
  const urls = ["/a", "/no-rule", "/a/../b"].map((url, i) => [i, { url }] as const);
  const { report } = await replayed(ofUrl("/a") + ofUrl("/b"), jsonl(urls));
  assert.equal([report.requests, report.passed, report.refused], [3, 2, 1]);
  assert.is(report.withoutRule, 1);
});

test("actors: device, account and what a field names; global rules count here", async () => {
  const text = `url: /
rules:
  - { actor: device, unit: day, rpu: 2, name: device, scope: global }
  - { actor: account, unit: day, rpu: 3, name: account }
  - { actor: tenant, unit: day, rpu: 4, name: tenant }
`;
  const line = (ip: string, account: string, org: string): Line => ({
    ip,
    account,
    o: { id: org },
  });
  const log = jsonl([
    [0, line("192.0.2.1", "ann", "x")],
    [1, line("192.0.2.1", "bob", "x")],
    [2, line("192.0.2.1", "ann", "x")],
    [3, line("hostname.example", "ann", "y")],
    [4, line("hostname.example", "ann", "y")],
  ]);
  const { report } = await replayed(text, log, "--field", "tenant=o.id");
  const counts = report.rules.map(({ actors }: Json) =>
    actors.map(({ actor, passed, refused }: Json) => [actor, passed, refused]),
  );
  assert.equal(counts, [
    [
      ["192.0.2.1", 2, 1],
      ["hostname.example", 2, 0],
    ],
    [
      ["ann", 3, 0],
      ["bob", 1, 0],
    ],
    [
      ["x", 2, 0],
      ["y", 2, 0],
    ],
  ]);
});

test("many actors: each is counted exactly, with its worst window", async () => {
  const text = rule("rpu: 3, algo: SL, mode: shadow").replace("all", "device");
  const count = runs(3000, 1000);
  // so many actors once, and between them one that comes every 100 ms
  const lines = Array.from({ length: 2 * count }, (_, i) => {
    const ip = i % 2 === 0 ? "192.0.2.1" : `10.0.${i >> 8}.${i & 255}`;
    return [i * 50, { ip }] as const;
  });
  const { report } = await replayed(text, jsonl(lines), "--top", "9999");
  const [{ actors, mostInWindow, mostOfOneActor }] = report.rules;
  assert.is(actors.length, count + 1);
  const [{ requests, passed, refused, mostInWindow: worst }, ...others] = actors;
  // a shadow rule refuses none
  assert.equal([requests, passed + refused, worst], [count, count, 10]);
  assert.ok(
    others.every((one: Json) => one.requests === 1 && one.passed === 1 && one.mostInWindow === 1),
  );
  assert.equal([mostInWindow, mostOfOneActor], [20, 10]);
});

test("an actor whose requests are a window apart: at most one in any window", async () => {
  const text = rule("rpu: 1, algo: LB, burst: 5").replace("all", "device");
  const { report } = await replayed(text, every(0, 5));
  const [{ actors, mostOfOneActor }] = report.rules;
  assert.equal([actors[0].passed, actors[0].waited], [1, 4]);
  assert.equal([actors[0].mostInWindow, mostOfOneActor], [1, 1]);
});

test("--top and --hash", async () => {
  const text = rule("rpu: 1").replace("all", "device");
  const log = jsonl([[0], [1, { ip: "192.0.2.2" }], [2]]);
  const actors = async (...args: string[]) =>
    (await replayed(text, log, ...args)).report.rules[0].actors.map(({ actor }: Json) => actor);
  assert.equal(await actors("--top", "1"), ["192.0.2.1"]);
  const [first, second] = await actors("--hash", "k");
  assert.match(first, /^#[0-9a-f]{12}$/);
  assert.is.not(first, second);
  assert.equal(await actors("--hash", "k"), [first, second]);
  assert.not.equal(await actors("--hash", "other"), [first, second]);
});

test("whole seconds are spread evenly, unless --no-spread", async () => {
  const line = (second: number) =>
    `192.0.2.1 - - [01/Jan/2026:00:00:0${second} +0000] "GET / HTTP/1.1" 200 1`;
  const log = [0, 0, 0, 0, 1, 1, 1, 1].map(line).join("\n");
  const passed = async (...args: string[]) =>
    (await replayed(rule("rpu: 4, burst: 1"), log, ...args)).report.passed;
  assert.is(await passed(), 8);
  assert.is(await passed("--no-spread"), 2);
});

test("lines out of order are put in order, up to --hold", async () => {
  const log = jsonl([[0], [3000], [1500], [4500]]);
  const slow = rule("rpu: 1, burst: 1, units: 1.5");
  const inTime = await replayed(slow, log);
  assert.equal([inTime.report.passed, inTime.late], [4, 0]);
  const pieces = [jsonl([[0], [3000], [3001]]), "\n", jsonl([[1500], [4500]])];
  const late = await replayed(slow, pieces, "--hold", "0");
  assert.is(late.late, 1);
  assert.is(late.report.requests, 5);
  await inFolder({ "rules.yaml": slow }, async (path) => {
    const { out } = await cli(["replay", path("rules.yaml"), "-", "--hold", "0"], {
      stdin: pieces,
    });
    assert.match(out, /1 line out of order by more than --hold: played late/);
  });
});

test("gzip, blank lines and line ends of Windows", async () => {
  const log = gzipSync(`${every(1000, 3).replaceAll("\n", "\r\n\r\n")}\r\n`);
  const { report, unread } = await replayed(rule("rpu: 1"), log);
  assert.equal([report.passed, unread], [3, 0]);
});

test("lines that are not requests are named and counted, and the others are played", async () => {
  await inFolder({ "rules.yaml": rule("rpu: 1") }, async (path) => {
    const stdin = `${every(1000, 2)}\n${"oh \u001b[2J no\n".repeat(7)}`;
    const { code, out, err } = await cli(["replay", path("rules.yaml"), "-"], { stdin });
    assert.is(code, 0);
    assert.match(out, /2 requests: 2 \(100\.0 %\)/);
    assert.match(out, /7 of 9 lines were not requests/);
    assert.match(err, /^stdin:3:\d+: found no /);
    assert.match(err, /and 2 more lines that are not requests/);
    assert.not.ok(`${out}${err}`.includes("\u001b"));
  });
});

test("nothing to play, and broken rules, are code 2", async () => {
  await inFolder(
    { "rules.yaml": rule("rpu: 1"), "bad.yaml": "url: x", empty: "" },
    async (path) => {
      const empty = await cli(["replay", path("rules.yaml"), path("empty")]);
      assert.equal([empty.code, empty.err], [2, `${path("empty")}: found no requests\n`]);
      const bad = await cli(["replay", path("bad.yaml"), path("empty")]);
      assert.is(bad.code, 2);
      assert.ok(bad.err.startsWith(`${path("bad.yaml")}:1:`), bad.err);
      const html = path("no/such/folder.html");
      const nowhere = await cli(["replay", path("rules.yaml"), "-", "--html", html], {
        stdin: every(1, 1),
      });
      assert.is(nowhere.code, 2);
      assert.match(nowhere.err, /cannot be written/);
    },
  );
});

test("the text: a summary and tables", async () => {
  const text =
    "url: /a\nrules: [{ actor: device, unit: second, rpu: 1, burst: 1, algo: LB, name: r }]";
  await inFolder({ "rules.yaml": text }, async (path) => {
    const stdin = jsonl([[0, { url: "/a" }], [0, { url: "/a" }], [0, { url: "/a" }], [2000]]);
    const { out } = await cli(["replay", path("rules.yaml"), "-"], { stdin });
    assert.match(
      out,
      /4 requests: 2 \(50\.0 %\) passed at once, 1 \(25\.0 %\) waited, 1 \(25\.0 %\) refused/,
    );
    assert.match(
      out,
      /│ r +│ +3 │ +1 │ +1 │ +1 │ +0 │ +1\.5, 3 │ +1 s, 1 s │ +1 │ +1 │ 1 in 1 s │/,
    );
    assert.match(out, /│ 192\.0\.2\.1 +│ +3 │ +1 │ +1 │ +1 │ +1 │/);
    assert.match(out, /1 \(25\.0 %\) matched no rule/);
  });
});

test("on a terminal it shows how far it is, and cleans up", async () => {
  await inFolder({ "rules.yaml": rule("rpu: 1"), log: `no\n${every(1, 5)}` }, async (path) => {
    const at = async (log: string, ...args: string[]) =>
      (await cli(["replay", path("rules.yaml"), log, ...args], { isTTY: true, stdin: every(1, 5) }))
        .err;
    assert.match(await at(path("log")), /lines/);
    assert.match(await at("-"), /lines/);
    assert.is(await at("-", "--no-progress"), "");
    // the bar returns to the saved position when it ends: it must not be the message's
    assert.match((await at(path("log"))).replaceAll("\u001b", "^"), /found no [^\n]*\n\^7/);
    // Ctrl-C leaves the terminal as it was
    assert.not.ok((await at(path("log"))).includes("\u001b[?"));
  });
});

test("HTML on stdout replaces the text, and JSON beside it is refused", async () => {
  await inFolder({ "rules.yaml": rule("rpu: 1") }, async (path) => {
    const replay = ["replay", path("rules.yaml"), "-", "--html", "-"];
    const { code, out, err } = await cli(replay, { stdin: every(1, 5) });
    assert.equal([code, err], [0, ""]);
    assert.match(out, /^<!doctype html>.*<\/html>\n$/s);
    assert.not.ok(existsSync("-"));
    const both = await cli([...replay, "--json"], { stdin: every(1, 5) });
    assert.equal([both.code, both.out], [2, ""]);
    assert.is(both.err, "--json and --html - cannot both be written to stdout\n");
  });
});

test("HTML: one file without a network, in which nothing of the log is markup", async () => {
  await inFolder(
    { "rules.yaml": rule("rpu: 10, algo: LB, burst: 3, mode: enforce").replace("all", "device") },
    async (path) => {
      const ip = "</script><img src=x onerror=alert(1)>";
      const stdin = jsonl(Array.from({ length: 50 }, (_, i) => [i * 60, { ip }] as const));
      const file = path("report.html");
      const { code } = await cli(["replay", path("rules.yaml"), "-", "--html", file], { stdin });
      assert.is(code, 0);
      const html = readFileSync(file, "utf8");
      assert.not.match(html, /<(img|link|iframe|script)|\bon\w+=(?!alert)|https?:/i);
      assert.match(html, "default-src 'none'; style-src 'unsafe-inline'\"");
      assert.match(html, "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;");
      const titles = [...html.matchAll(/<title>(2026[^<]*)</g)].map(([, title = ""]) => title);
      assert.match(titles[0] ?? "", /^2026-01-01 00:00:00, 1 s: /);
      assert.is(
        titles
          .flatMap((title) => title.match(/\d+(?= (passed|waited|refused))/g) ?? [])
          .reduce((sum, n) => sum + Number(n), 0),
        50,
      );
    },
  );
});

test("HTML: times are those of the log's own zone", async () => {
  await inFolder({ "rules.yaml": rule("rpu: 1") }, async (path) => {
    const line = (second: string) =>
      `192.0.2.1 - - [10/Oct/2000:13:55:${second} -0330] "GET / HTTP/1.1" 200 5`;
    const file = path("report.html");
    const { code } = await cli(["replay", path("rules.yaml"), "-", "--html", file], {
      stdin: `no request\n${line("36")}\n${line("38")}`,
    });
    assert.is(code, 0);
    const html = readFileSync(file, "utf8");
    assert.match(html, /2000-10-10 13:55:36\.000 to 2000-10-10 13:55:38\.000 \(UTC-03:30\)/);
    assert.match(html, "<title>2000-10-10 13:55:36, 1 s: 1 passed</title>");
    assert.match(html, "Times: UTC-03:30.");
  });
});

test("peaks beside means: in the text, in JSON and in the plot", async () => {
  // ten at once, then one a minute for an hour
  const log = jsonl([
    ...Array.from({ length: 10 }, () => [0] as const),
    ...Array.from({ length: 60 }, (_, i) => [(i + 1) * 60_000] as const),
  ]);
  const { report } = await replayed(rule("rpu: 2"), log);
  assert.equal(report.rules[0].perSecond, { mean: 70 / 3600, peak: 10 });
  await inFolder({ "rules.yaml": rule("rpu: 2") }, async (path) => {
    const args = ["replay", path("rules.yaml"), "-", "--html", path("report.html")];
    const { out } = await cli(args, { stdin: log });
    assert.match(out, "0.02, 10");
    const html = readFileSync(path("report.html"), "utf8");
    assert.match(html, "0.02 in the mean, 10 in the busiest second");
    assert.match(html, "Areas: the mean of each 8 s. Line: the busiest second of each 8 s.");
    assert.match(html, '<path class="chart-peak"');
    assert.match(html, '<path class="chart-limit"');
    assert.match(
      html,
      "<title>2026-01-01 00:00:00, 32 s: 2 passed, 8 refused; 10 in the busiest second</title>",
    );
  });
});

test("a device that counts instead of a missing account is marked, and is not the account of that name", async () => {
  const text = `url: /
rules: [{ actor: account, unit: day, rpu: 9, name: r }, { actor: { header: x-tenant }, unit: day, rpu: 9, name: h, whenActorMissing: shared }]`;
  const lines = [{ account: "192.0.2.1" }, {}, {}, { account: "" }].map(
    (line, i) => [i, line] as const,
  );
  const { report } = await replayed(text, jsonl(lines));
  const marks = report.rules.map(({ actors }: Json) =>
    actors.map(({ actor, isFallback, passed }: Json) => [actor, isFallback, passed]),
  );
  assert.equal(marks[0], [
    ["192.0.2.1", true, 3],
    ["192.0.2.1", false, 1],
  ]);
  assert.equal(marks[1], [["", true, 4]]);
  await inFolder({ "rules.yaml": text }, async (path) => {
    const args = ["replay", path("rules.yaml"), "-", "--html", path("report.html")];
    const { out } = await cli(args, { stdin: jsonl(lines) });
    assert.match(out, /│ 192\.0\.2\.1 \(device\) +│ +3 │/);
    assert.match(out, /│ 192\.0\.2\.1 +│ +1 │/);
    const html = readFileSync(path("report.html"), "utf8");
    assert.match(html, '<th scope="row">192.0.2.1 <em>device</em></th>');
    assert.match(html, "had no such actor");
  });
});

test("forwarded-for lists: --trusted-proxies says whose address counts", async () => {
  const text = "url: /\nrules: [{ actor: device, unit: day, rpu: 1, name: r }]";
  const line = (client: string) =>
    `10.0.0.5 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "curl" "${client}"`;
  const log = ["203.0.113.1", "203.0.113.2", "evil, 203.0.113.2"].map(line).join("\n");
  await inFolder({ "rules.yaml": text }, async (path) => {
    const run = (...args: string[]) =>
      cli(["replay", path("rules.yaml"), "-", "--json", ...args], { stdin: log });
    const trusting = await run("--trusted-proxies", "1");
    assert.is(JSON.parse(trusting.out).report.passed, 2);
    assert.is(trusting.err, "");
    const none = await run();
    assert.is(JSON.parse(none.out).report.passed, 1);
    assert.match(none.err, /^stdin:1: this line seems to have a forwarded-for list.*--trusted/);
    assert.is(none.err.trim().split("\n").length, 1);
  });
  const fields = ["--field", "forwarded=xff", "--trusted-proxies", "2"];
  const json = jsonl([[0, { xff: "203.0.113.1, 203.0.113.2" }]]);
  const { report } = await replayed(text, json, ...fields);
  assert.is(report.rules[0].actors[0].actor, "203.0.113.1");
});

test("a file that cannot be written does not cost the text", async () => {
  await inFolder({ "rules.yaml": rule("rpu: 1") }, async (path) => {
    const { code, out, err } = await cli(
      ["replay", path("rules.yaml"), "-", "--html", path("no/such/folder.html")],
      { stdin: every(100, 3) },
    );
    assert.is(code, 2);
    assert.match(out, /3 requests: 1 \(33\.3 %\) passed at once/);
    assert.match(err, /folder\.html: cannot be written/);
  });
});

test("rules that count failures go by the status, and unknown functions cost 1", async () => {
  const lines = [200, 401, "500", 200, 302, 404, 200, undefined].map(
    (status, i) => [i, { status }] as const,
  );
  const { report } = await replayed(rule("rpu: 3, algo: W, count: failures"), jsonl(lines));
  assert.equal([report.passed, report.refused], [6, 2]);
  const combined = [401, 200, 401, 401]
    .map((status) => `192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" ${status} 5`)
    .join("\n");
  const failures = rule("rpu: 2, algo: W, count: failures").replace("second", "day");
  assert.is((await replayed(failures, combined)).report.refused, 1);
  const cost = await replayed(rule("rpu: 2, cost: tokens"), every(1, 5), "--cost", "tokens");
  assert.equal([cost.report.passed, cost.report.refused], [2, 3]);
});

test("actors with an argument can be fields of the log", async () => {
  const rules = `url: /
rules: [{ actor: { header: x-tenant }, unit: day, rpu: 1, name: r }, { actor: { claim: org }, unit: day, rpu: 1, name: c }]`;
  const lines = ["a", "a", "b"].map((tenant, i) => [i, { tenant, org: tenant }] as const);
  const fields = ["--field", "header:x-tenant=tenant", "--field", "claim:org=org"];
  const { report } = await replayed(rules, jsonl(lines), ...fields);
  assert.equal([report.passed, report.refused], [2, 1]);
});

test.run();
