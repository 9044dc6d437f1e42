/** Keeps leases in Redis: in a sorted set, with `concurrency.lua`. */
import { show } from "../../ground/check.ts";
import type { Breaker } from "../breaker.ts";
import type {
  LeaseReply,
  LeaseRequest,
  LeaseStore,
  LeaseVerb,
  Listening,
  TicketState,
} from "../lease-store.ts";
import type { ProcessCounter } from "../process-counter.ts";
import type { Subscriptions } from "./clients/adapter.ts";
import type { BreakerOf } from "./connection.ts";
import { explain, LEASES } from "./explain.ts";
import { concurrency } from "./lua.gen.ts";
import { isPermanent } from "./permanent.ts";
import { processCountersOf } from "./process-counters.ts";
import { callScript, type Script, type ScriptRunner } from "./script-runner.ts";

const SCRIPT: Script = { name: "smoothLimiter:concurrency", lua: concurrency };

const LETTERS: Readonly<Record<LeaseVerb, string>> = {
  acquire: "a",
  try: "t",
  keep: "k",
  release: "r",
  limit: "l",
  look: "o",
  adopt: "h",
  probe: "p",
};

const STANDINGS: Readonly<Record<string, TicketState>> = { 0: "none", 1: "held", 2: "waiting" };

export class RedisLeaseStore implements LeaseStore {
  readonly #runner: ScriptRunner;
  readonly #subscriptions: Subscriptions;
  readonly #prefix: string;
  readonly #breakerOf: BreakerOf | undefined;

  constructor(
    runner: ScriptRunner,
    subscriptions: Subscriptions,
    prefix: string,
    breakerOf?: BreakerOf,
  ) {
    this.#breakerOf = breakerOf;
    this.#runner = runner;
    this.#subscriptions = subscriptions;
    this.#prefix = prefix;
  }

  breakerOf(key: string): Breaker | undefined {
    return this.#breakerOf?.(this.#prefix + key);
  }

  isPermanent(error: unknown): boolean {
    return isPermanent(error);
  }

  async run(key: string, declared: number, requests: readonly LeaseRequest[]): Promise<LeaseReply> {
    const name = this.#prefix + key;
    // pass the name for channels too: a client may add its own prefix to keys, but not to channels
    const args = [String(declared), name];
    for (const { verb, what } of requests) args.push(LETTERS[verb] + what);
    try {
      return decode(await callScript(this.#runner, SCRIPT, [name], args), requests.length);
    } catch (error) {
      throw await explain(this.#runner, LEASES, [name], error);
    }
  }

  processes(key: string): ProcessCounter {
    return processCountersOf(this.#runner).counter(this.#prefix + key);
  }

  listen(
    key: string,
    processId: string,
    granted: (ids: readonly string[]) => void,
    resumed: () => void,
  ): Listening {
    const hear = (message: string) => granted(String(message).split(" "));
    return this.#subscriptions(`${this.#prefix}${key}:${processId}`, hear, resumed);
  }
}

function decode(reply: unknown, requests: number): LeaseReply {
  const [numbers = "", digits = ""] = String(reply).split("\t");
  const [limit = NaN, active = NaN, waiting = NaN, lapseMs = NaN] = numbers
    .split(" ", 4)
    .map(Number);
  if (typeof reply !== "string" || digits.length !== requests || Number.isNaN(lapseMs)) {
    throw new TypeError(`the script answered ${show(reply)} to ${requests} requests`);
  }
  const standings = Array.from(digits, (digit) => STANDINGS[digit] ?? "none");
  return { limit, active, waiting, lapseMs, standings };
}
