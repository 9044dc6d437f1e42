import { show } from "../../check.ts";
import { atEndOfTurn } from "../../end-of-turn.ts";
import { callScript, type Script, type ScriptRunner } from "./client.ts";

/** A script about one key, and the same for several. */
export interface KeyScript {
  readonly one: Script;
  readonly many: Script;
}

/** A script keeps other callers waiting while it runs: more keys than this take another call. */
const MOST_KEYS = 64;

/** A script that is to be run for a key, and what becomes of it. */
export interface PendingScript {
  readonly key: string;
  readonly args: readonly string[];
  replied(reply: unknown): void;
  failed(error: unknown): void;
}

const coalescers = new WeakMap<ScriptRunner, ScriptCoalescer>();

/**
 * Scripts about several keys that are sent in one turn of the event loop share a call, for most of what
 * a call costs is the call. Where the server does not accept the keys of one call together, as on
 * Cluster, each goes by itself from then on.
 */
export class ScriptCoalescer {
  readonly #runner: ScriptRunner;
  readonly #pending = new Map<KeyScript, PendingScript[]>();
  #apart = false;

  /** One for all stores of a client. */
  static of(runner: ScriptRunner): ScriptCoalescer {
    const known = coalescers.get(runner);
    if (known !== undefined) return known;
    const coalescer = new ScriptCoalescer(runner);
    coalescers.set(runner, coalescer);
    return coalescer;
  }

  private constructor(runner: ScriptRunner) {
    this.#runner = runner;
  }

  /** @returns the reply */
  run(script: KeyScript, key: string, args: readonly string[]): Promise<unknown> {
    return new Promise((replied, failed) => {
      this.send(script, { key, args, replied, failed });
    });
  }

  /** @param others keys that the script reads besides: then it goes by itself */
  send(script: KeyScript, pending: PendingScript, others: readonly string[] = []): void {
    if (this.#apart || others.length > 0) {
      this.#sendAlone(script, pending, others);
      return;
    }
    if (this.#pending.size === 0) atEndOfTurn(this.#sendAll);
    const waiting = this.#pending.get(script);
    if (waiting === undefined) this.#pending.set(script, [pending]);
    else waiting.push(pending);
  }

  readonly #sendAll = (): void => {
    for (const [script, pending] of this.#pending) {
      this.#pending.delete(script);
      if (pending.length <= MOST_KEYS) {
        this.#sendTogether(script, pending);
        continue;
      }
      for (let from = 0; from < pending.length; from += MOST_KEYS) {
        this.#sendTogether(script, pending.slice(from, from + MOST_KEYS));
      }
    }
  };

  #sendTogether(script: KeyScript, pending: readonly PendingScript[]): void {
    if (pending.length === 1) {
      for (const each of pending) this.#sendAlone(script, each);
      return;
    }
    const keys: string[] = [];
    const all: string[] = [];
    for (const { key, args } of pending) {
      keys.push(key);
      all.push(String(args.length));
      for (const arg of args) all.push(arg);
    }
    this.#call(script.many, keys, all).then(
      (replies) => settleAll(pending, replies),
      (error: unknown) => {
        if (/CROSSSLOT|same slot/.test(String(error))) {
          this.#apart = true;
          for (const each of pending) this.#sendAlone(script, each);
        } else {
          for (const each of pending) each.failed(error);
        }
      },
    );
  }

  #sendAlone({ one }: KeyScript, pending: PendingScript, others: readonly string[] = []): void {
    this.#call(one, [pending.key, ...others], pending.args).then(
      (reply) => pending.replied(reply),
      (error: unknown) => pending.failed(error),
    );
  }

  #call(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    return callScript(this.#runner, script, keys, args);
  }
}

function settleAll(pending: readonly PendingScript[], replies: unknown): void {
  if (!Array.isArray(replies) || replies.length !== pending.length) {
    const error = new TypeError(`the script answered ${show(replies)} to ${pending.length} keys`);
    for (const each of pending) each.failed(error);
    return;
  }
  for (const [i, each] of pending.entries()) settle(each, String(replies[i]));
}

function settle(pending: PendingScript, text: string): void {
  if (text.startsWith("+")) pending.replied(text.slice(1));
  else pending.failed(new Error(text.slice(1)));
}
