/**
 * Runs the requests of a limiter in one script call: `frame.lua` around the twins of the algorithms
 * that it uses.
 */
import type { Quota } from "../../algorithms/algorithm.ts";
import { show } from "../../check.ts";
import { toMillis } from "../../clock.ts";
import type { Amount } from "../../permits.ts";
import type { Breaker } from "../breaker.ts";
import {
  type Answer,
  type LimitNote,
  REFUSED,
  type Store,
  type StoreReply,
  type StoreRequest,
} from "../store.ts";
import type { ScriptRunner } from "./client.ts";
import { Courier, type KeyScript } from "./courier.ts";
import { lua } from "./lua.gen.ts";

export class RedisStore implements Store {
  readonly #courier: Courier;
  readonly #prefix: string;
  /** For trips that only reserve, and for those with other verbs. */
  readonly #reserving: KeyScript;
  readonly #anything: KeyScript;
  readonly #policies: number;
  readonly #limitKeys: readonly string[];
  readonly breaker: Breaker | undefined;

  /**
   * @param names of the algorithms, one for each policy
   * @param limitKeys in which operators keep limits
   * @param breaker of all limiters on this server
   */
  constructor(
    runner: ScriptRunner,
    prefix: string,
    names: readonly string[],
    limitKeys: readonly string[] = [],
    breaker?: Breaker,
  ) {
    this.breaker = breaker;
    this.#limitKeys = limitKeys;
    this.#courier = Courier.of(runner);
    this.#prefix = prefix;
    this.#reserving = scriptFor(names, "");
    this.#anything = scriptFor(names, String(lua.verbs));
    this.#policies = names.length;
  }

  run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
  ): Promise<StoreReply> {
    const args = [declared, now === undefined ? "" : String(now)];
    let script = this.#reserving;
    for (const request of requests) {
      if (request.verb !== "reserve") script = this.#anything;
      this.#encode(request, args);
    }
    return this.#courier
      .run(script, this.#prefix + key, args, this.#limitKeys)
      .then((reply) => decodeReply(requests, reply));
  }

  #encode(request: StoreRequest, args: string[]): void {
    args.push(request.verb);
    switch (request.verb) {
      case "reserve":
        args.push(String(request.count), String(request.longest), String(request.late));
        this.#encodeAmount(request.amount, args);
        break;
      case "decide":
      case "peek":
        args.push(String(request.late));
        this.#encodeAmount(request.amount, args);
        break;
      case "back":
        this.#encodeAmount(request.amount, args);
        for (let i = 0; i < 2 * this.#policies; i++) args.push(String(request.receipts[i] ?? 0));
        break;
      case "charge":
      case "refund":
      case "settle":
        this.#encodeAmount(request.amount, args);
        break;
      case "pause":
        args.push(String(request.micros));
        break;
      case "set":
        args.push(request.numbers);
        break;
      case "owed":
      case "unset":
      case "reset":
        break;
    }
  }

  #encodeAmount(amount: Amount, args: string[]): void {
    if (typeof amount === "number") args.push(String(amount));
    else for (let i = 0; i < this.#policies; i++) args.push(String(amount[i] ?? 0));
  }
}

const scripts = new Map<string, KeyScript>();

/** The frame around the twins, with the rarer verbs or without. All limiters share them. */
function scriptFor(names: readonly string[], verbs: string): KeyScript {
  const used = [...new Set(names)].sort();
  const name = `smoothLimiter:${used.join("+")}${verbs === "" ? "" : ":verbs"}`;
  const known = scripts.get(name);
  if (known !== undefined) return known;
  const twins = used.map((each) => `do\n${lua[each]}end\n`).join("");
  const frame = String(lua.frame).replace("--> verbs\n", () => verbs);
  const [made = "", run = ""] = frame.split("--> run\n");
  const once = `local algorithms = {}\n${twins}${made}`;
  const script = {
    one: { name, lua: `${once}key, first, last = KEYS[1], 1, #ARGV\n${run}` },
    many: { name: `${name}:many`, lua: `${once}local function run()\n${run}end\n${lua.many}` },
  };
  scripts.set(name, script);
  return script;
}

function decodeReply(requests: readonly StoreRequest[], reply: unknown): StoreReply {
  const [head = "", ...texts] = String(reply).split("\t");
  const [inForce = "", ...notes] = head.split("!");
  if (typeof reply !== "string" || texts.length !== requests.length) {
    throw new TypeError(`the script answered ${show(reply)} to ${requests.length} requests`);
  }
  const answers: Answer[] = [];
  for (let i = 0; i < requests.length; i++) {
    const text = String(texts[i]);
    const verb = requests[i]?.verb;
    if (verb === "reserve") decodeGrants(text, answers);
    else if (verb === "decide" || verb === "peek") answers.push(decodeStanding(text));
    else if (verb === "owed") answers.push(decodeOwed(text));
    else if (verb === "set" || verb === "unset") answers.push({ ...AT_ONCE, writtenUnder: text });
    else answers.push(AT_ONCE);
  }
  return notes.length === 0
    ? { inForce, answers }
    : { inForce, notes: notes.map(decodeNote), answers };
}

function decodeNote(text: string): LimitNote {
  const end = text.indexOf("=");
  if (end < 0) return { policy: Number(text) - 1, ignored: undefined };
  return { policy: Number(text.slice(0, end)) - 1, ignored: text.slice(end + 1) };
}

const AT_ONCE: Answer = { wait: 0, receipts: [], slowest: 0, quotas: [], owed: [] };

/** Neighbours that are told the same share an answer. */
function decodeGrants(texts: string, answers: Answer[]): void {
  let last = "0";
  let answer = AT_ONCE;
  for (const text of texts.split(" ")) {
    if (text !== last) {
      last = text;
      answer = decodeGrant(text);
    }
    answers.push(answer);
  }
}

function decodeGrant(text: string): Answer {
  const { receipts, slowest, quotas, owed } = AT_ONCE;
  const end = text.indexOf(":");
  if (end < 0) return { wait: decodeNumber(text), receipts, slowest, quotas, owed };
  const taken = text.slice(end + 1).split(":");
  const wait = decodeNumber(text.slice(0, end));
  return { wait, receipts: taken.map(Number), slowest, quotas, owed };
}

function decodeStanding(text: string): Answer {
  const [wait = NaN, slowest = 0, ...values] = text.split(" ").map(decodeNumber);
  const quotas: Quota[] = [];
  for (let i = 0; i + 3 < values.length; i += 4) {
    const [limit = 0, remaining = 0, reset = 0, window = 0] = values.slice(i, i + 4);
    quotas.push({ limit, remaining, resetMs: toMillis(reset), windowMs: window / 1000 });
  }
  return { ...AT_ONCE, wait, slowest, quotas };
}

function decodeOwed(text: string): Answer {
  const values = text.split(" ").map(decodeNumber);
  return { ...AT_ONCE, wait: values.at(-1) ?? NaN, owed: values.slice(0, -1) };
}

function decodeNumber(text: string): number {
  if (text === "no") return REFUSED;
  const number = Number(text);
  return Number.isNaN(number) ? Infinity : number; // "inf", "never"
}
