import * as fc from "fast-check";
import { gcra, tokenBucket } from "smooth-limiter";
import * as assert from "uvu/assert";
import { runs, suite } from "../../../test/support/suite.ts";
import {
  type ReadOptions,
  type RequestRule,
  RulesError,
  readRules,
  type UrlRules,
} from "../../src/index.ts";
import { anyText } from "../support/any-text.ts";

/** Processor time: other work on the machine does not count. */
const cpuMs = () => process.cpuUsage().user / 1000;

const test = suite("rules");

/** What is wrong, a line each. */
function problems(text: string, options: ReadOptions = {}): string[] {
  try {
    readRules(text, { source: "r.yaml", ...options });
  } catch (error) {
    assert.instance(error, RulesError, String((error as Error).stack));
    assert.is((error as RulesError).code, "RULES_INVALID");
    return (error as RulesError).message.split("\n");
  }
  return [];
}

const rule = (fields: string) => `url: /\nrules: [{ actor: all, unit: second, rpu: 5, ${fields} }]`;

/** The numbers of a rule that says nothing about them. */
const NO_NUMBERS = {
  nodelay: undefined,
  slack: undefined,
  buckets: undefined,
  align: undefined,
  timeZone: undefined,
  with: {},
};

/** The other fields of a rule that says nothing about them. */
const UNSAID = {
  ...NO_NUMBERS,
  exact: false,
  except: [],
  hosts: undefined,
  whenActorMissing: undefined,
  report: true,
  costs: {},
  costBy: undefined,
  count: "all",
  block: undefined,
};

test("the spelling of the description, with its defaults", () => {
  const text = `
Url: /sample
rules:
  - actor: device
    unit: second
    rpu: 100
    algo: TB
    scope: global
---
- url: /
  rules:
    - { actor: all, unit: minute, units: 5, rpu: 2.5 }
`;
  const common = {
    ...UNSAID,
    burst: undefined,
    methods: undefined,
    limitKey: undefined,
    algo: "token bucket",
    mode: "enforce",
    cost: 1,
    overrides: [],
    exempt: [],
  };
  assert.equal(readRules(text, { source: "r.yaml" }), [
    {
      ...common,
      name: "/sample device per second token bucket",
      url: "/sample",
      urls: ["/sample"],
      actor: "device",
      unit: "second",
      units: 1,
      periodMs: 1000,
      rpu: 100,
      scope: "global",
      place: { source: "r.yaml", line: 4, column: 5 },
    },
    {
      ...common,
      name: "/ all per 5 minute token bucket",
      url: "/",
      urls: ["/"],
      actor: "all",
      unit: "minute",
      units: 5,
      periodMs: 300_000,
      rpu: 2.5,
      scope: "local",
      place: { source: "r.yaml", line: 12, column: 7 },
    },
  ]);
});

test("algorithms by name or abbreviation, exactly; another case is reported with what is meant", () => {
  const spellings = {
    "token bucket": ["TB", "token bucket"],
    window: ["W", "window", "fixed window"],
    "sliding window": ["SW", "sliding window"],
    "leaky bucket": ["LB", "leaky bucket"],
    "sliding log": ["SL", "sliding log"],
    gcra: ["gcra"],
  };
  for (const [written, meant] of [
    ["tb", "TB"],
    ["Token-Bucket", "token bucket"],
    ["FixedWindow", "fixed window"],
    ["leaky", "leaky bucket"],
  ]) {
    assert.match(problems(rule(`algo: ${written}`)).join(), `; did you mean ${meant}?`);
  }
  for (const [algo, names] of Object.entries(spellings)) {
    for (const name of names) {
      const [read] = readRules(rule(`algo: ${name}`)) as readonly RequestRule[];
      assert.is(read?.algo, algo, name);
    }
  }
});

test("an unknown word that is the beginning of one name, or its plural, is reported with the name", () => {
  const messageOf = (unit: string) => {
    try {
      readRules([{ url: "/", rules: [{ actor: "all", unit, rpu: 1 }] }]);
      return "none";
    } catch (error) {
      return String(error).split("allowed: ")[1];
    }
  };
  const all = "second, minute, hour, day, month, ever";
  assert.is(messageOf("min"), `${all}; did you mean minute?`);
  assert.is(messageOf("Secs"), `${all}; did you mean second?`);
  assert.is(messageOf("days"), `${all}; did you mean day?`);
  for (const unit of ["m", "", "s", "fortnight"]) {
    assert.is(messageOf(unit), unit === "s" ? `${all}; did you mean second?` : all, unit);
  }
});

test("typed rules accept every spelling that a file accepts, and no other types", () => {
  const rules: UrlRules[] = [
    {
      url: "/",
      rules: [
        { actor: "all", unit: "minute", rpu: 1, algo: "TB", mode: "shadow", methods: ["GET"] },
      ],
    },
  ];
  assert.is(readRules(rules)[0]?.name, "/ GET all per minute token bucket");
  // @ts-expect-error a unit is a word
  assert.throws(() => readRules({ url: "/", rules: [{ actor: "all", unit: 5, rpu: 1 }] }));
  // @ts-expect-error so is a mode
  assert.throws(() => readRules({ url: "/", rules: [{ actor: "all", connections: 1, mode: 1 }] }));
});

test("a host name with letters that no request has is reported with what clients send", () => {
  const read = (host: string) =>
    readRules([{ url: "/", host, rules: [{ actor: "all", connections: 1 }] }]);
  assert.throws(
    () => read("bücher.example"),
    /found "bücher.example", allowed: xn--bcher-kva.example, as clients send this name/,
  );
  assert.throws(() => read("*.例え.jp"), /allowed: \*\.xn--r8jz45g\.jp, as clients send/);
  for (const host of ["bücher.example:80", "bü cher.example", "bücher.example/x", "a b", ""]) {
    assert.throws(() => read(host), /allowed: a host name without a port/, host);
  }
  assert.equal(read("xn--bcher-kva.example")[0]?.hosts, ["xn--bcher-kva.example"]);
});

test("a polluted prototype is named, instead of an error from within", async () => {
  const before = readRules("[]");
  Object.defineProperty(Object.prototype, "polluted", {
    value: {},
    enumerable: true,
    configurable: true,
  });
  try {
    assert.throws(
      () => readRules([{ url: "/", rules: [{ actor: "all", connections: 1 }] }]),
      /Object.prototype must have no members .*, got "polluted"/,
    );
    assert.throws(() => readRules("url: /\nrules: [{ actor: all, connections: 1 }]"), /"polluted"/);
  } finally {
    delete (Object.prototype as { polluted?: unknown }).polluted;
  }
  assert.equal(readRules("[]"), before);
});

test("whether responses mention a rule", () => {
  const read = (rule: string) => readRules(`url: /\nrules: [${rule}]`)[0];
  const kinds = ["{ actor: all, unit: day, rpu: 1", "{ actor: all, connections: 1"];
  for (const kind of kinds) {
    const said = ["", ", report: true", ", report: false"].map((report) =>
      read(`${kind}${report} }`),
    );
    assert.equal(
      said.map((rule) => (rule as { report?: boolean }).report),
      [true, true, false],
    );
    assert.throws(
      () => read(`${kind}, report: maybe }`),
      /report: found "maybe", allowed: true or false/,
    );
  }
  assert.throws(() => read("{ bytesPerSecond: 1, report: false }"), /found "report", allowed/);
});

test("there is room to say more", () => {
  const [read] = readRules(`
url: /
rules:
  - actor: account
    unit: hour
    rpu: 10
    burst: 20
    name: by account
    cost: 2
    methods: [POST, GET, POST]
    mode: shadow
    overrides: { gold: { rpu: 100 }, "12": { unit: day, burst: 5 } }
    exempt: [root]
`);
  const { overrides, ...rest } = read ?? { overrides: [] };
  assert.equal(rest, {
    ...UNSAID,
    name: "by account",
    url: "/",
    urls: ["/"],
    actor: "account",
    unit: "hour",
    units: 1,
    periodMs: 3_600_000,
    rpu: 10,
    burst: 20,
    algo: "token bucket",
    scope: "local",
    mode: "shadow",
    cost: 2,
    limitKey: undefined,
    methods: ["GET", "POST"],
    exempt: ["root"],
    place: { source: "rules", line: 4, column: 5 },
  });
  const day = { rpu: 10, unit: "day", units: 1, periodMs: 86_400_000, burst: 5 };
  const gold = { rpu: 100, unit: "hour", units: 1, periodMs: 3_600_000, burst: 20 };
  const more = NO_NUMBERS;
  // as JavaScript orders the keys of an object
  assert.equal(overrides, [
    { value: "12", ...day, ...more },
    { value: "gold", ...gold, ...more },
  ]);
});

test("an error names file, line, column, what was found and what is allowed", () => {
  const rows: [text: string, ...says: string[]][] = [
    [
      "url: /\nrules:\n  - actor: all\n    unit: secnd\n    rpu: 100\n",
      'r.yaml:4:11: rules.0.unit: found "secnd", allowed: second, minute, hour, day, month, ever',
    ],
    [
      "url: /\nrules:\n  - actor: all\n",
      "r.yaml:3:5: rules.0.rpu: found nothing, allowed: requests per unit, a number, 0 or more: 0 refuses all",
      "r.yaml:3:5: rules.0.unit: found nothing, allowed: second, minute, hour, day, month, ever",
    ],
    [
      "- url: /\n  rulez: []\n",
      "r.yaml:1:3: rules: found nothing, allowed: a list of rules, at least one",
      'r.yaml:2:3: found "rulez", allowed: url, exact, except, host, rules',
    ],
    [
      rule("cost: 6"),
      "r.yaml:2:9: found cost 6, allowed: at most 5, which is all that passes at once",
    ],
    [
      rule("algo: W, burst: 2"),
      'r.yaml:2:9: found burst, which the algorithm "window" does not know',
    ],
    [
      rule("with: { a: 1 }"),
      'r.yaml:2:9: found with, which the algorithm "token bucket" does not know',
    ],
    [
      rule("overrides: { gold: { rpu: 0.5 } }"),
      'r.yaml:2:9: override "gold": found cost 1, allowed: at most 0.5, which is all that passes at once',
    ],
    [
      rule("algo: LB, burst: 3, nodelay: 5"),
      "r.yaml:2:9: nodelay must be true, false or a finite number from 0 to capacity (3), got 5",
    ],
    [
      rule("exempt: [12]"),
      "r.yaml:2:54: rules.0.exempt.0: found 12, allowed: a text: a value of the actor",
    ],
    [
      "url: /\nrules: [{ actor: tenant, unit: day, rpu: 1 }]",
      'r.yaml:2:18: rules.0.actor: found "tenant", allowed: all, account, device, or a name that you register (options.actors; check --actor; replay --field)',
    ],
    [
      rule("}, { actor: all, unit: second, rpu: 6"),
      'r.yaml:2:48: found a second rule "/ all per second token bucket", the first is in line 2: give one of them a name',
    ],
    [
      "url: api\nrules: [{ actor: all, unit: day, rpu: 1 }]",
      'r.yaml:1:6: url: found "api", allowed: a path: it begins with / and has no ?, #, ; or \\ in it, no . or .. as a segment, and * only as a whole segment',
    ],
    ["hello", 'r.yaml:1:1: found "hello", allowed: a map of url, exact, except, host, rules'],
    ["", "r.yaml:1:1: found nothing, allowed: a url with rules, a list, or []"],
  ];
  for (const [text, ...says] of rows) assert.equal(problems(text), says, text);
});

test("a built-in actor that the application registers too is listed once", () => {
  const [message = ""] = problems("url: /\nrules: [{ actor: tenant, unit: day, rpu: 1 }]", {
    actors: ["account"],
  });
  assert.match(message, /allowed: all, account, device, or/);
});

test("an override inherits what it does not set, the period included", () => {
  const [rule] = readRules(
    "{ url: /, rules: [{ actor: device, unit: minute, units: 5, rpu: 10, overrides: { a: { rpu: 99 }, b: { unit: hour }, c: { units: 2 } } }] }",
  ) as readonly RequestRule[];
  assert.equal(
    rule?.overrides.map(({ value, rpu, periodMs }) => [value, rpu, periodMs]),
    [
      ["a", 99, 5 * 60_000],
      ["b", 10, 5 * 3_600_000],
      ["c", 10, 2 * 60_000],
    ],
  );
});

test("invalid numbers are refused", () => {
  const none = "url: /\nrules: [{ actor: all, unit: second, rpu: 1, burst: 0 }]";
  assert.match(problems(none).join(), /burst must be a finite number above 0, got 0/);
  for (const found of ['"100"', ".inf", ".nan", "-1", "null", "[]", "true"]) {
    const text = `url: /\nrules: [{ actor: all, unit: second, rpu: ${found} }]`;
    assert.match(
      problems(text).join(),
      /rpu: found .*, allowed: requests per unit, a number, 0 or more/,
    );
  }
});

test("a url that is ambiguous in a request is refused in a rule", () => {
  for (const url of [
    "sample",
    "/a/../b",
    "/./a",
    "/a//b",
    "/a?b",
    "/a#b",
    "/a/*.png",
    "/a/**",
    "/a;b",
    "/a\\\\b",
  ]) {
    const text = `url: "${url}"\nrules: [{ actor: all, unit: second, rpu: 1 }]`;
    assert.match(problems(text).join(), /^r\.yaml:1:6: url: found .*, allowed: a path/, url);
  }
  for (const url of ["/", "/a", "/a/", "/.well-known/a..b", "/a%20b", "/é"]) {
    const text = `url: "${url}"\nrules: [{ actor: all, unit: second, rpu: 1 }]`;
    assert.equal(problems(text), [], url);
  }
});

test("a segment that may be anything is :name, {name} or *, and nothing else", () => {
  const says = (url: string) =>
    problems(`url: "${url}"\nrules: [{ actor: all, unit: second, rpu: 1 }]`);
  for (const url of ["/users/:id", "/:tenant/x", "/users/{id}/posts", "/a/*", "/*/b", "/*"]) {
    assert.equal(says(url), [], url);
  }
  for (const id of ["[id]", "<int:id>", "(a|b)", ":id.json", ":", "{a-b}", "{id}.json"]) {
    assert.match(says(`/users/${id}`).join(), /may be anything is :name, \{name\} or \*$/, id);
  }
  for (const url of ["/v1/items:batchGet", "/%3Aid", "/%2A", "/a{b}", "/x(1)", "/@user"]) {
    assert.equal(says(url), [], url);
  }
});

test("a url with ambiguous escapes is refused", () => {
  for (const url of ["/a%3fb", "/a%23", "/a%3bx", "/a%5cb", "/%2e%2e/a", "/a%00", "/%20", "/..."]) {
    const text = `url: "${url}"\nrules: [{ actor: all, unit: second, rpu: 1 }]`;
    assert.match(problems(text).join(), /^r\.yaml:1:6: url: found .* not encoded either$/, url);
  }
});

test("an unknown method is refused, because the rule would never apply", () => {
  const [says = ""] = problems(rule("methods: [GET, GTE]"));
  assert.match(says, 'r.yaml:2:60: rules.0.methods.1: found "GTE", allowed: GET, HEAD, POST');
  for (const methods of ['["*"]', "[ANY]", '["GET,POST"]', '[""]', "[1]"]) {
    assert.match(problems(rule(`methods: ${methods}`)).join(), /allowed: GET, HEAD/, methods);
  }
  assert.equal(readRules(rule("methods: [M-SEARCH, QUERY, DELETE]"))[0]?.methods, [
    "DELETE",
    "M-SEARCH",
    "QUERY",
  ]);
});

test("an empty list is valid; an empty text is an error", () => {
  assert.equal(readRules("[]"), []);
  assert.equal(readRules("---\n---\n[]\n---\n# nothing\n"), []);
  for (const text of ["", "# rules", "---\n---", "null"]) {
    assert.match(problems(text).join(), /found nothing/);
  }
});

test("registered names: new kinds of rules touch neither the code nor old files", () => {
  const options: ReadOptions = {
    actors: ["tenant"],
    algorithms: {
      "double bucket": {
        aliases: ["2B"],
        fields: ["with"],
        policy: ({ rpu, periodMs, with: { factor = 2 } }) =>
          tokenBucket({ capacity: rpu * Number(factor), refill: rpu, everyMs: periodMs }),
      },
    },
  };
  const text =
    "url: /\nrules: [{ actor: tenant, unit: second, rpu: 5, algo: 2B, with: { factor: 3 } }]";
  const [read] = readRules(text, options) as readonly RequestRule[];
  assert.is(read?.actor, "tenant");
  assert.is(read?.algo, "double bucket");
  assert.equal(read?.with, { factor: 3 });
  assert.match(problems(text).join("\n"), /found "tenant".*\n.*found "2B"/);
  // the error of an algorithm is an error of the file
  assert.match(
    problems(text.replace("3", "-3"), options).join(),
    /capacity must be a finite number/,
  );
  assert.equal(readRules(rule("algo: TB"), options), readRules(rule("algo: TB")));
  const mine = { gcra: { policy: () => gcra({ limit: 1, periodMs: 1000 }) } };
  assert.match(problems(rule("algo: gcra, burst: 1"), { algorithms: mine }).join(), /found burst/);
});

test("hostile texts are refused quickly, with a message", () => {
  const nine = Array(9).fill(0);
  const bomb = ["a: &a [x]", ..."bcdefghi"]
    .map((line, i) =>
      i === 0 ? line : `${line}: &${line} [${nine.map(() => `*${"abcdefgh"[i - 1]}`)}]`,
    )
    .join("\n");
  const rows: [text: string, says: RegExp][] = [
    [bomb, /found more than 400000 parts, aliases included/],
    [`[&a x, ${Array(200).fill("*a")}]`, /found more than 100 aliases/],
    ["- *nobody", /found \*nobody, which this document has no anchor for/],
    ["url: /\nurl: /b\nrules: []", /r\.yaml:2:1: found the key "url" a second time/],
    ["url: /\nUrl: /b\nrules: []", /r\.yaml:2:1: found the key "url" a second time/],
    ["url: /\n__proto__: { a: 1 }\nrules: []", /r\.yaml:2:1: found a key "__proto__"/],
    [rule("overrides: { 0012: { rpu: 1 } }"), /r\.yaml:2:58: found a key 12, allowed: a text/],
    [rule("overrides: { [a]: { rpu: 1 } }"), /found a key that is no text/],
    ["url: /\nrules:\n\t- actor: all\n", /r\.yaml:3:1: tab characters must not be used/],
    ["url: [\n", /r\.yaml:\d:\d: /],
    ["- &a [*a]", /found \*a, which this document has no anchor for/],
    ["!!js/function x", /found the tag "!!js\/function", allowed: none/],
    ["url: !!binary aGVsbG8=\nrules: []", /r\.yaml:1:6: found the tag "!!binary", allowed: none/],
    ["url: !!str /\nrules: !!seq []", /found the tag "!!str"/],
    ["{ url: /, rules: !x { a: b } }", /found the tag "!x"/],
    ["x".repeat(10_000_000), /found 10000000 characters, allowed: at most 524288/],
    ["[".repeat(400_000), /r\.yaml:1:32: found more than 32 levels in one another/],
    ["- ".repeat(5000), /r\.yaml:1:65: found more than 32 levels in one another/],
    ["? ".repeat(5000), /found more than 32 levels in one another/],
    ["a: ".repeat(5000), /r\.yaml:1:5: bad indentation/],
    [`{ a: b, ${"a: ".repeat(5000)}`, /r\.yaml:1:13: missed comma/],
    ["[a,\na: a: ".repeat(5000), /missed comma/],
    [
      Array.from({ length: 500 }, (_, i) => `${" ".repeat(i)}- `).join("\n"),
      /r\.yaml:33:33: found more than 32 levels/,
    ],
    [`url: '${"[".repeat(50)}'\nrules: []`, /url: found "\[/],
    [Array.from({ length: 5000 }, (_, i) => `a${i}: x`).join("\n"), /url: found nothing/],
  ];
  const start = cpuMs();
  for (const [text, says] of rows) assert.match(problems(text).join("\n"), says);
  assert.ok(cpuMs() - start < 8000);
  assert.is({}.constructor, Object);
  assert.is(problems("- x\n".repeat(1000)).length, 20);
});

test("long texts are refused with a message", () => {
  const count = runs(170_000, 50_000);
  const rows: [text: string, says: RegExp][] = [
    ["---\n".repeat(10_001), /found more than 10000 documents/],
    ["...\n".repeat(2000), /found nothing/],
    [`[${",".repeat(2000)}]`, /expected the node content, but found ','/],
    [`[${"a,".repeat(2000)}]`, /found "a", allowed: a map of url, exact, except, host, rules/],
    ["*".repeat(2000), /found \*{41}, which/],
    ["|\n".repeat(2000), /allowed: a map of url, exact, except, host, rules/],
    [
      `url: /\nrules: [${"{},".repeat(count)}]`,
      new RegExp(`r\\.yaml:2:8: found ${count} rules, allowed: at most 20000`),
    ],
  ];
  for (const [text, says] of rows) {
    const started = cpuMs();
    const found = problems(text);
    // 170 000 rules took 4 s when their mistakes were listed
    assert.ok(cpuMs() - started < 2500, text.slice(0, 40));
    assert.match(found.join("\n"), says);
    assert.ok(found.length <= 20);
  }
});

test("more mistakes than the validator can list are a RulesError", () => {
  const ones = "1,".repeat(150_000);
  assert.match(problems(rule(`exempt: [${ones}]`)).join(), /found/);
});

test("a byte order mark and Windows' line ends do not matter", () => {
  const text = "\ufeff# rules\r\nurl: /\r\nrules:\r\n  - { actor: all, unit: second, rpu: 1 }\r\n";
  assert.equal(readRules(text)[0]?.place, { source: "rules", line: 4, column: 5 });
});

test("any text gives rules or a RulesError", async () => {
  const fragments = fc.constantFrom(
    ..."- |: |{|}|[|]|,|\n|\n  |\t|#|&a |*a|!!|'|\"|\\|---\n|>|\\||? |<<|~|%|@|\0|\ufeff|url|Url|rules|actor|all|unit|second|rpu|1|.inf|__proto__|/|é|\ud800".split(
      "|",
    ),
  );
  const texts = fc.oneof(
    anyText,
    fc.array(fragments).map((all) => all.join("")),
  );
  await fc.assert(
    fc.property(texts, (text) => void problems(text)),
    { numRuns: runs(60, 8) },
  );
});

test("any JSON gives rules or a RulesError", async () => {
  const value = fc.jsonValue({ maxDepth: 3 });
  const field = fc.constantFrom("actor", "unit", "rpu", "algo", "overrides", "exempt", "with", "x");
  const rules = fc.array(
    fc.dictionary(field, value).map((more) => ({ actor: "all", unit: "second", rpu: 1, ...more })),
  );
  await fc.assert(
    fc.property(rules, (list) => void problems(JSON.stringify({ url: "/", rules: list }))),
    { numRuns: runs(60, 8) },
  );
});

test("a name is the same wherever the rule stands", () => {
  const names = (text: string) => readRules(text).map(({ name }) => name);
  const a = "- { url: /é, rules: [{ actor: all, unit: day, rpu: 1, methods: [GET] }] }\n";
  const b = "- { url: /b, rules: [{ actor: device, unit: day, rpu: 1, algo: W }] }\n";
  assert.equal(names(a + b), ["/%C3%A9 GET all per day token bucket", "/b device per day window"]);
  assert.equal(names(b + a), names(a + b).reverse());
});

test("a name is printable ASCII, whatever the actor and the algorithm are called", () => {
  const policy = () => tokenBucket({ capacity: 1, refill: 1, everyMs: 1 });
  const [rule] = readRules(
    '{ url: /, rules: [{ actor: "日\\n\\ud800", unit: day, rpu: 1, algo: ü }] }',
    {
      actors: ["日\n\ud800"],
      algorithms: { ü: { policy } },
    },
  );
  assert.is(rule?.name, "/ %E6%97%A5%0A%EF%BF%BD per day %C3%BC");
});

test("bad arguments are named", () => {
  const refuses = (says: RegExp, ...args: unknown[]) =>
    assert.throws(() => readRules(...(args as Parameters<typeof readRules>)), says);
  refuses(/rules must be a text or plain objects, got an object/, Buffer.from("[]"));
  refuses(/rules must be a text or plain objects, got a promise/, Promise.resolve("[]"));
  refuses(/rules must be a text or plain objects, got 5/, 5);
  refuses(/options must be an object, got null/, "[]", null);
  refuses(
    /options has no "actor"; expected one of source, actors, actorKinds, algorithms, costs/,
    "[]",
    {
      actor: [],
    },
  );
  refuses(/source must be a string, got 1/, "[]", { source: 1 });
  refuses(/actors must be an array of names, got "tenant"/, "[]", { actors: "tenant" });
  refuses(/actors must be a string, got 1/, "[]", { actors: [1] });
  refuses(/algorithms must be an object, got an array/, "[]", { algorithms: [] });
  refuses(/algorithms\.x must have policy\(numbers\), got null/, "[]", { algorithms: { x: null } });
});

test("limitKey is for global rules", () => {
  const [read] = readRules(rule("scope: global, limitKey: limits")) as readonly RequestRule[];
  assert.is(read?.limitKey, "limits");
  assert.throws(
    () => readRules(rule("limitKey: limits")),
    /found limitKey, which needs scope: global/,
  );
  assert.throws(() => readRules(rule("scope: global, limitKey: 5")), /limitKey: found 5/);
});

test("the name of a file in place of its text is named as such", () => {
  for (const path of ["rules.yaml", "./conf/rules.yml", "C:\\\\rules.json"]) {
    assert.throws(() => readRules(path), /rules must be the rules themselves.*fileSource/);
  }
});

test.run();
