import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { turn } from "../../test/support/limiter/watch.ts";
import { suite } from "../../test/support/suite.ts";
import {
  createGateway,
  fromHeader,
  functionSource,
  type GatewayOptions,
  type RuleSource,
  RulesError,
  type RulesEvent,
  readRules,
  type Verdict,
} from "../src/index.ts";
import { request } from "./support/http/request.ts";

const test = suite("reloads");

/** A source whose text the test sets. */
class HandSource implements RuleSource {
  readonly name: string;
  text: string | Error;
  #changed: (() => void) | undefined;

  constructor(name: string, text: string | Error) {
    this.name = name;
    this.text = text;
  }

  async load(): Promise<string> {
    const { text } = this;
    await turn();
    if (typeof text !== "string") throw text;
    return text;
  }

  watch(changed: () => void): () => void {
    this.#changed = changed;
    return () => {
      this.#changed = undefined;
    };
  }

  get isWatched(): boolean {
    return this.#changed !== undefined;
  }

  async update(text: string | Error): Promise<void> {
    this.text = text;
    this.#changed?.();
    await turn();
    await turn();
  }
}

async function open(sources: readonly HandSource[], options: Partial<GatewayOptions> = {}) {
  const events: string[] = [];
  const clock = new FakeClock();
  const gateway = await createGateway({
    rules: sources,
    clock,
    actors: { account: fromHeader("account") },
    onRules: (event: RulesEvent) => {
      const error = "error" in event ? `: ${(event.error as Error).message.slice(0, 60)}` : "";
      events.push(`${event.source} ${event.type}${error}`);
      throw new Error("an error in the listener");
    },
    ...options,
  });
  const ask = (account = "ann", url = "/") =>
    (gateway.check(request(url, { headers: { account } })) as Verdict).outcomes.map(
      ({ rule, allowed, decision }) => `${allowed ? "+" : "-"}${rule.name} ${decision.remaining}`,
    );
  return { gateway, events, clock, ask };
}

const rule = (fields: string, url = "/") =>
  `- { url: ${url}, rules: [{ actor: account, unit: day, algo: W, ${fields} }] }\n`;

test("counters survive if the rule did not change, wherever it is in the file", async () => {
  const file = new HandSource("file", rule("rpu: 5, name: a") + rule("rpu: 5, name: b"));
  const { ask, events } = await open([file]);
  assert.equal(ask(), ["+a 4", "+b 4"]);
  await file.update(rule("rpu: 9, name: c") + rule("rpu: 5, name: b") + rule("rpu: 5, name: a"));
  assert.equal(ask(), ["+c 8", "+b 3", "+a 3"]);
  await file.update(rule("rpu: 5, name: a"));
  assert.equal(ask(), ["+a 2"]);
  assert.equal(events, ["file applied", "file applied", "file applied"]);
});

test("changed numbers apply to permits that are used already: no fresh burst", async () => {
  const file = new HandSource("file", rule("rpu: 5, name: a"));
  const { ask } = await open([file]);
  for (let i = 0; i < 4; i++) ask();
  await file.update(rule("rpu: 6, name: a"));
  assert.equal(ask(), ["+a 1"]);
  await file.update(rule("rpu: 2, name: a"));
  assert.equal(ask(), ["-a 0"]);
});

test("an actor that gets or loses an override keeps its used permits", async () => {
  const file = new HandSource("file", rule("rpu: 5, name: a"));
  const { ask } = await open([file]);
  for (let i = 0; i < 3; i++) ask();
  await file.update(rule("rpu: 5, name: a, overrides: { ann: { rpu: 10 } }"));
  assert.equal(ask(), ["+a 6"]);
  assert.equal(ask("bob"), ["+a 4"]);
  await file.update(rule("rpu: 5, name: a, overrides: { ann: { rpu: 12 } }"));
  assert.equal(ask(), ["+a 7"]);
  await file.update(rule("rpu: 5, name: a"));
  assert.equal(ask(), ["-a 0"]);
});

test("a rule changes from shadow to enforced, and gets another algorithm, scope or actor", async () => {
  const file = new HandSource("file", rule("rpu: 5, name: a, mode: shadow"));
  const { ask } = await open([file]);
  ask();
  await file.update(rule("rpu: 5, name: a"));
  assert.equal(ask(), ["+a 3"]);
  await file.update(rule("rpu: 5, name: a").replace("W", "SW"));
  assert.equal(ask(), ["+a 4"]);
  await file.update(rule("rpu: 5, name: a").replace("account", "all").replace("W", "SW"));
  assert.equal(ask(), ["+a 4"]);
});

test("a request that waits in a line is re-timed when the pace changes", async () => {
  const text = (rpu: number) =>
    `url: /\nrules: [{ actor: all, unit: second, rpu: ${rpu}, algo: LB, burst: 3, name: line }]`;
  const file = new HandSource("file", text(1));
  const { gateway, clock } = await open([file]);
  await gateway.check(request("/"));
  const waiting = gateway.check(request("/")) as Promise<Verdict>;
  await file.update(text(10));
  await clock.advance(100);
  assert.is((await waiting).waitedMs, 100);
});

test("an invalid version is rejected as a whole and reported, and the old one stays", async () => {
  const file = new HandSource("file", rule("rpu: 5, name: a"));
  const { ask, events } = await open([file]);
  ask();
  await file.update(rule("rpu: 9, name: b") + rule("rpu: -1, name: a"));
  assert.equal(ask(), ["+a 3"]);
  await file.update(rule("rpu: 9, name: g, scope: global"));
  assert.equal(ask(), ["+a 2"]);
  await file.update("");
  assert.equal(ask(), ["+a 1"]);
  await file.update("");
  await file.update(rule("rpu: 6, name: a"));
  assert.equal(ask(), ["+a 1"]);
  assert.equal(events, [
    "file applied",
    "file refused: file:2:64: rules.0.rpu: found -1, allowed: requests per unit",
    "file refused: file:1:21: the gateway has no options.redis, which scope glo",
    "file refused: file:1:1: found nothing, allowed: a url with rules, a list, ",
    "file applied",
  ]);
});

test("remote wins over local", async () => {
  const remote = new HandSource("remote", rule("rpu: 1, name: r"));
  const local = new HandSource("local", rule("rpu: 2, name: l"));
  const { ask, events } = await open([remote, local]);
  assert.equal(ask(), ["+r 0"]);
  await local.update(rule("rpu: 3, name: l"));
  assert.equal(ask(), ["-r 0"]);
  assert.equal(events, ["remote applied"]);
});

test("a remote version that cannot be used leaves the remote one before it in force", async () => {
  const remote = new HandSource("remote", rule("rpu: 5, name: r"));
  const local = new HandSource("local", rule("rpu: 5, name: l"));
  const { ask } = await open([remote, local]);
  await remote.update(rule("rpu: 5, name: r, scope: global"));
  assert.equal(ask(), ["+r 4"]);
});

test("while the remote source is unreachable, its last valid rules stay", async () => {
  const remote = new HandSource("remote", rule("rpu: 5, name: r"));
  const local = new HandSource("local", rule("rpu: 5, name: l"));
  const { ask, events } = await open([remote, local]);
  await remote.update(new Error("refused"));
  await remote.update(new Error("refused"));
  assert.equal(ask(), ["+r 4"]);
  await remote.update(rule("rpu: 6, name: r"));
  assert.equal(ask(), ["+r 4"]);
  assert.equal(events, ["remote applied", "remote gone: refused", "remote back", "remote applied"]);
});

test("while the remote source is unreachable, by option the local rules apply", async () => {
  const remote = new HandSource("remote", rule("rpu: 5, name: r"));
  const local = new HandSource("local", rule("rpu: 5, name: l"));
  const { ask, events } = await open([remote, local], { whenSourceGone: "next" });
  await remote.update(new Error("refused"));
  assert.equal(ask(), ["+l 4"]);
  await remote.update(rule("rpu: 5, name: r"));
  assert.equal(ask(), ["+r 4"]);
  assert.equal(events, [
    "remote applied",
    "remote gone: refused",
    "local applied",
    "remote back",
    "remote applied",
  ]);
});

test("at the start: invalid and unreachable sources are skipped", async () => {
  const local = () => new HandSource("local", rule("rpu: 5, name: l"));
  const broken = new HandSource("remote", "x");
  const one = await open([broken, local()]);
  assert.equal(one.ask(), ["+l 4"]);
  await broken.update(rule("rpu: 5, name: r"));
  assert.equal(one.ask(), ["+r 4"]);

  const gone = new HandSource("remote", new Error("refused"));
  const other = await open([gone, local()]);
  assert.equal(other.ask(), ["+l 4"]);
  assert.equal(other.events, ["remote gone: refused", "local applied"]);

  const unusable = new HandSource("remote", rule("rpu: 5, scope: global"));
  assert.equal((await open([unusable, local()])).ask(), ["+l 4"]);
});

test("at the start: without any rules createGateway rejects", async () => {
  const fault = (...sources: HandSource[]) =>
    open(sources).then(
      () => undefined,
      (error: unknown) => error,
    );
  assert.instance(await fault(new HandSource("file", "x")), RulesError);
  const unusable = rule("rpu: 5, scope: global");
  assert.match(String(await fault(new HandSource("file", unusable))), /no options\.redis/);
  assert.match(String(await fault(new HandSource("file", new Error("refused")))), /refused/);
  const both = await fault(new HandSource("a", "x"), new HandSource("b", new Error("refused")));
  assert.is((both as AggregateError).errors.length, 2);
});

test("without onRules, process warnings report invalid rules and a source that is gone", async () => {
  const codes: unknown[] = [];
  const messages: string[] = [];
  const listen = (warning: Error & { code?: string }) => {
    codes.push(warning.code);
    messages.push(warning.message);
  };
  process.on("warning", listen);
  try {
    const invalid = new HandSource("only", "x");
    await createGateway({ rules: invalid }).catch(() => {});
    const [remote, file] = [
      new HandSource("remote", new Error("no network")),
      new HandSource("file", rule("rpu: 5, name: a")),
    ];
    const actors = { account: fromHeader("account") };
    const gateway = await createGateway({ rules: [remote, file], actors });
    await file.update(rule("rpu: many"));
    await gateway.close();
    await turn();
  } finally {
    process.off("warning", listen);
  }
  assert.equal(codes, ["SMOOTH_LIMITER_RULES_GONE", "SMOOTH_LIMITER_RULES_INVALID"]);
  assert.match(messages[0] ?? "", /^remote: the rules cannot be loaded: no network\. Pass onRules/);
  assert.match(
    messages[1] ?? "",
    /^file: these rules are invalid and do not apply: .*found "many"/,
  );
});

test("a listener that rejects stops nothing", async () => {
  const unhandled: unknown[] = [];
  const collect = (error: unknown) => unhandled.push(error);
  process.once("unhandledRejection", collect);
  const onRules = async () => {
    throw new Error("a listener's fault");
  };
  await (await createGateway({ rules: [], onRules })).close();
  await turn();
  process.off("unhandledRejection", collect);
  assert.equal(unhandled, []);
});

test("a change during a load causes another load", async () => {
  const file = new HandSource("file", rule("rpu: 5, name: a"));
  const { ask } = await open([file]);
  void file.update(rule("rpu: 6, name: a"));
  void file.update(rule("rpu: 7, name: a"));
  await file.update(rule("rpu: 8, name: a"));
  for (let i = 0; i < 4; i++) await turn();
  assert.equal(ask(), ["+a 7"]);
});

test("closing ends the watch, and a load that is under way", async () => {
  const file = new HandSource("file", rule("rpu: 5, name: a"));
  const { gateway, ask, events } = await open([file]);
  void file.update(rule("rpu: 6, name: a"));
  await gateway.close();
  await turn();
  assert.not.ok(file.isWatched);
  assert.equal(ask(), ["+a 4"]);
  assert.equal(events, ["file applied"]);
});

test("each source is stopped once, also if another one fails or the gateway is closed twice", async () => {
  const file = new HandSource("file", rule("rpu: 5, name: a"));
  const watched = (name: string, watch: RuleSource["watch"]): HandSource =>
    Object.assign(new HandSource(name, "[]"), { watch });
  let stops = 0;
  const counted = watched("counted", () => () => {
    stops += 1;
  });
  const broken = () => {
    throw new Error("broken");
  };
  const failed = await open([counted, watched("b", broken), file]).catch(String);
  assert.equal([failed, stops, file.isWatched], ["Error: broken", 1, false]);
  const { gateway } = await open([watched("b", () => broken), counted, file]);
  for (let i = 0; i < 2; i++) assert.is(await gateway.close().catch(String), "Error: broken");
  assert.equal([stops, file.isWatched], [2, false]);
});

test("rules that were read already are accepted, other values are rejected", async () => {
  const rules = readRules(rule("rpu: 5, name: a"));
  const actors = { account: fromHeader("account") };
  const gateway = await createGateway({ rules, actors });
  assert.equal(gateway.rules, rules);
  await gateway.close();
  assert.equal((await createGateway({ rules: [] })).rules, []);

  const refusals: [options: unknown, says: RegExp][] = [
    [
      { rules: "rules.yaml" },
      /rules must be .*, or the result of readRules, got "rules\.yaml": readRules\(text\) reads a text, fileSource\(path\) a file$/,
    ],
    [
      { rules: [...rules, new HandSource("a", "[]")], actors },
      /rules must be a source.*, got an array$/,
    ],
    [{ rules }, /rules:1:21: the gateway has no options\.actors\.account/],
    [{ rules: [...rules, ...rules], actors }, /there are two rules "a"/],
    [{ rules: rules.map((one) => ({ ...one, algo: "x" })), actors }, /options\.algorithms\["x"\]/],
    [{ rules: [], actors: { a: "b" } }, /actors\.a must be a function, got "b"/],
    [{ rules: [], actors: null }, /actors must be an object, got null/],
    [{ rules: [], actors: "tenant" }, /actors must be an object, got "tenant"/],
    [{ rules: [], actors: Promise.resolve({}) }, /actors must be an object, got/],
    [{ rules: [], algorithms: "x" }, /algorithms must be an object, got "x"/],
    [{ rules: [], algorithms: { x: {} } }, /algorithms\.x must have policy\(numbers\), got an obj/],
    [{ rules: [], redis: "redis://localhost" }, /redis must be a client of ioredis/],
    [{ rules: [], redis: null }, /redis must be a client of ioredis/],
    [
      { rules: [{ url: "/", rules: [] }] },
      /found an array, allowed: a list of rules, at least one/,
    ],
    [
      { rules: rules.map((one) => ({ ...one, name: "日" })), actors },
      /name of rule 0 must be prin/,
    ],
    [
      { rules: functionSource(() => undefined as never) },
      /function must return YAML or .* undefined/,
    ],
    [{ rules: functionSource(() => 42 as never) }, /function must return YAML or .*, got 42/],
    [{ rules: [], onRules: 1 }, /onRules must be a function, got 1/],
    [{ rules: [], rulez: 1 }, /options has no "rulez"/],
    [{ rules: [], whenActorMissing: "x" }, /whenActorMissing must be one of/],
    [{ rules: [], whenSourceGone: "x" }, /whenSourceGone must be one of/],
    [{ rules: [], whenUnavailable: "wait" }, /whenUnavailable must be one of local, allow, throw/],
    [{ rules: [], instances: "many" }, /instances must be .*, or "auto", got "many"/],
    [
      { rules: [], instances: 0 },
      /instances must be a finite number, 1 or more, a function .*, got 0/,
    ],
    [{ rules: [], whenFull: "x" }, /whenFull must be one of/],
    [{ rules: [], maxKeys: 0 }, /maxKeys must be/],
    [{ rules: [], timeoutMs: 0 }, /timeoutMs must be/],
    [{ rules: [], prefix: 1 }, /prefix must be a string/],
    [{ rules: [], clock: {} }, /clock must have now/],
    [
      { rules: [], trustedProxies: 1, actors: { device: () => "x" } },
      /pass it to your own device actor instead/,
    ],
    [{ rules: [], trustedProxies: -1 }, /trustedProxies must be a whole number/],
    [undefined, /options must be an object/],
  ];
  for (const [options, says] of refusals) {
    const error = await createGateway(options as GatewayOptions).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    assert.match(String(error), says);
  }
});

test.run();
