/**
 * Runs the requests of a limiter in one script call: `frame.lua` around the twins of the algorithms
 * that it uses.
 */
import type { Quota } from "../../algorithms/algorithm.ts";
import { show } from "../../check.ts";
import { toMillis } from "../../clock.ts";
import type { Amount } from "../../permits.ts";
import { type Answer, REFUSED, type Store, type StoreReply, type StoreRequest } from "../store.ts";
import type { Script, ScriptRunner } from "./client.ts";
import { lua } from "./lua.gen.ts";

export class RedisStore implements Store {
  readonly #runner: ScriptRunner;
  readonly #prefix: string;
  /** For trips that only reserve, and for those with other verbs. */
  readonly #reserving: Script;
  readonly #anything: Script;
  readonly #policies: number;

  /** @param names of the algorithms, one for each policy */
  constructor(runner: ScriptRunner, prefix: string, names: readonly string[]) {
    this.#runner = runner;
    this.#prefix = prefix;
    this.#reserving = scriptFor(names, "");
    this.#anything = scriptFor(names, String(lua.verbs));
    this.#policies = names.length;
  }

  async run(
    key: string,
    declared: string,
    requests: readonly StoreRequest[],
    now: number | undefined,
  ): Promise<StoreReply> {
    const args = [declared, now === undefined ? "" : String(now)];
    for (const request of requests) this.#encode(request, args);
    const script = requests.every(({ verb }) => verb === "reserve")
      ? this.#reserving
      : this.#anything;
    const reply = await this.#runner.runScript(script, [this.#prefix + key], args);
    const [inForce = "", ...texts] = String(reply).split("\t");
    if (typeof reply !== "string" || texts.length !== requests.length) {
      throw new TypeError(`the script answered ${show(reply)} to ${requests.length} requests`);
    }
    return {
      inForce,
      answers: requests.flatMap((request, i) => decode(request, String(texts[i]))),
    };
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
        this.#encodeAmount(request.receipts, args);
        break;
      case "charge":
        this.#encodeAmount(request.amount, args);
        break;
      case "pause":
        args.push(String(request.micros));
        break;
      case "set":
        args.push(request.numbers);
        break;
      case "reset":
        break;
    }
  }

  #encodeAmount(amount: Amount, args: string[]): void {
    if (typeof amount === "number") args.push(String(amount));
    else for (let i = 0; i < this.#policies; i++) args.push(String(amount[i] ?? 0));
  }
}

/** The frame around the twins, with the rarer verbs or without. */
function scriptFor(names: readonly string[], verbs: string): Script {
  const used = [...new Set(names)].sort();
  const twins = used.map((name) => `do\n${lua[name]}end\n`).join("");
  return {
    name: `smoothLimiter:${used.join("+")}${verbs === "" ? "" : ":verbs"}`,
    lua: `local algorithms = {}\n${twins}${lua.frame}`.replace("--> verbs\n", () => verbs),
  };
}

function decode(request: StoreRequest, text: string): Answer[] {
  if (request.verb === "reserve") return text.split(" ").map(decodeGrant);
  if (request.verb === "decide" || request.verb === "peek") return [decodeStanding(text)];
  return [AT_ONCE];
}

const AT_ONCE: Answer = { wait: 0, receipts: [], slowest: 0, quotas: [] };

function decodeGrant(text: string): Answer {
  if (text === "0") return AT_ONCE;
  const [wait = NaN, ...receipts] = text.split(":").map(decodeNumber);
  return { ...AT_ONCE, wait, receipts };
}

function decodeStanding(text: string): Answer {
  const [wait = NaN, slowest = 0, ...values] = text.split(" ").map(decodeNumber);
  const quotas: Quota[] = [];
  for (let i = 0; i + 3 < values.length; i += 4) {
    const [limit = 0, remaining = 0, reset = 0, window = 0] = values.slice(i, i + 4);
    quotas.push({ limit, remaining, resetMs: toMillis(reset), windowMs: toMillis(window) });
  }
  return { ...AT_ONCE, wait, slowest, quotas };
}

function decodeNumber(text: string): number {
  if (text === "no") return REFUSED;
  return text === "inf" || text === "never" ? Infinity : Number(text);
}
