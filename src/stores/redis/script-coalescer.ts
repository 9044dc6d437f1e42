import { show } from "../../ground/check.ts";
import { atEndOfTick } from "../../ground/end-of-tick.ts";
import { onePerClient } from "./per-client.ts";
import { callScript, isCrossSlot, type Script, type ScriptRunner } from "./script-runner.ts";

/** A script for one key, and the same script for several keys. */
export interface KeyScript {
  readonly one: Script;
  readonly many: Script;
}

/** The most keys in a call: the server runs nothing else while a script runs. */
const MOST_KEYS = 64;

/** A script call for a key that has not been sent yet, and the callbacks for its result. */
export interface PendingScript {
  readonly script: KeyScript;
  readonly key: string;
  readonly args: readonly string[];
  /** Arguments of this key only: they follow `args`, which several keys may share. */
  readonly own: readonly string[];
  readonly replied: (reply: unknown) => void;
  readonly failed: (error: unknown) => void;
}

/** Returns the coalescer of a client: one for all its stores. */
export const coalescerOf = /* @__PURE__ */ onePerClient(
  "script coalescers",
  (runner: ScriptRunner) => new ScriptCoalescer(runner),
);

/**
 * Sends scripts for several keys in one call if they are sent in one tick of the event loop, because the
 * call itself is most of the cost. If the server does not accept different keys in one call, as on
 * Cluster, each script is sent by itself from then on.
 */
export class ScriptCoalescer {
  readonly #runner: ScriptRunner;
  #pending: PendingScript[] = [];
  #apart = false;

  constructor(runner: ScriptRunner) {
    this.#runner = runner;
  }

  /** Runs a script for a key and returns the reply. */
  run(
    script: KeyScript,
    key: string,
    args: readonly string[],
    own: readonly string[],
  ): Promise<unknown> {
    return new Promise((replied, failed) => {
      this.send({ script, key, args, own, replied, failed });
    });
  }

  /** @param others further keys that the script reads: with any, the script is sent by itself */
  send(pending: PendingScript, others: readonly string[] = []): void {
    if (this.#apart || others.length > 0) this.#sendAlone(pending, others);
    else if (this.#pending.push(pending) === 1) atEndOfTick(this.#sendAll);
  }

  readonly #sendAll = (): void => {
    let rest: readonly PendingScript[] = this.#pending;
    this.#pending = [];
    while (rest.length > 1) {
      const script = rest[0]?.script;
      const alike = rest.filter((pending) => pending.script === script);
      rest = rest.filter((pending) => pending.script !== script);
      for (let from = 0; from < alike.length; from += MOST_KEYS) {
        this.#sendTogether(alike.slice(from, from + MOST_KEYS));
      }
    }
    for (const pending of rest) this.#sendAlone(pending);
  };

  #sendTogether(pending: readonly PendingScript[]): void {
    const [first] = pending;
    if (first === undefined || pending.length === 1) {
      for (const each of pending) this.#sendAlone(each);
      return;
    }
    const keys = pending.map(({ key }) => key);
    this.#call(first.script.many, keys, shareArguments(pending)).then(
      (replies) => settleAll(pending, replies),
      (error: unknown) => {
        if (isCrossSlot(error)) {
          this.#apart = true;
          for (const each of pending) this.#sendAlone(each);
        } else {
          for (const each of pending) each.failed(error);
        }
      },
    );
  }

  #sendAlone(pending: PendingScript, others: readonly string[] = []): void {
    const { script, key, args, own, replied, failed } = pending;
    this.#call(script.one, [key, ...others], [...args, ...own]).then(replied, failed);
  }

  #call(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    return callScript(this.#runner, script, keys, args);
  }
}

/** Encodes equal arguments of neighbours once: number of keys, of arguments, these, and each key's own. */
function shareArguments(pending: readonly PendingScript[]): readonly string[] {
  const shared: string[] = [];
  for (let from = 0; from < pending.length; ) {
    const { args } = pending[from] as PendingScript;
    let to = from + 1;
    while (to < pending.length && areEqual(args, pending[to]?.args)) to += 1;
    shared.push(String(to - from), String(args.length), ...args);
    for (; from < to; from++) shared.push(...(pending[from] as PendingScript).own);
  }
  return shared;
}

function areEqual(one: readonly string[], other: readonly string[] = []): boolean {
  return one.length === other.length && one.every((each, i) => each === other[i]);
}

function settleAll(pending: readonly PendingScript[], replies: unknown): void {
  if (!Array.isArray(replies) || replies.length !== pending.length) {
    const error = new TypeError(`the script answered ${show(replies)} to ${pending.length} keys`);
    for (const each of pending) each.failed(error);
    return;
  }
  for (const [i, each] of pending.entries()) settle(each, replies[i]);
}

function settle(pending: PendingScript, reply: unknown): void {
  const text = String(reply);
  if (text.startsWith("-")) pending.failed(new Error(text.slice(1)));
  else pending.replied(reply);
}
