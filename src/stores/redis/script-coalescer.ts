import { show } from "../../check.ts";
import { callScript, type Script, type ScriptRunner } from "./client.ts";

/** A script about one key, and the same for several. */
export interface KeyScript {
  readonly one: Script;
  readonly many: Script;
}

/** A script keeps other callers waiting while it runs: more keys than this take another call. */
const MOST_KEYS = 64;

interface PendingScript {
  readonly key: string;
  readonly args: readonly string[];
  resolve(reply: unknown): void;
  reject(error: unknown): void;
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

  /** @param others keys that the script reads besides: then it goes by itself */
  run(
    script: KeyScript,
    key: string,
    args: readonly string[],
    others: readonly string[] = [],
  ): Promise<unknown> {
    if (this.#apart || others.length > 0) {
      return this.#call(script.one, [key, ...others], args);
    }
    return new Promise((resolve, reject) => {
      const waiting = this.#pending.get(script);
      const pending = { key, args, resolve, reject };
      if (waiting !== undefined) {
        waiting.push(pending);
      } else {
        this.#pending.set(script, [pending]);
        queueMicrotask(() => this.#send(script));
      }
    });
  }

  #send(script: KeyScript): void {
    const pending = this.#pending.get(script) as readonly PendingScript[];
    this.#pending.delete(script);
    for (let from = 0; from < pending.length; from += MOST_KEYS) {
      this.#sendTogether(script, pending.slice(from, from + MOST_KEYS));
    }
  }

  #sendTogether(script: KeyScript, pending: readonly PendingScript[]): void {
    if (pending.length === 1) {
      this.#sendEach(script, pending);
      return;
    }
    const keys = pending.map(({ key }) => key);
    const args = pending.flatMap((one) => [String(one.args.length), ...one.args]);
    this.#call(script.many, keys, args).then(
      (replies) => {
        const isList = Array.isArray(replies) && replies.length === pending.length;
        pending.forEach((one, i) => {
          if (isList) settle(one, replies[i]);
          else
            one.reject(
              new TypeError(`the script answered ${show(replies)} to ${keys.length} keys`),
            );
        });
      },
      (error: unknown) => {
        if (/CROSSSLOT|same slot/.test(String(error))) {
          this.#apart = true;
          this.#sendEach(script, pending);
        } else {
          for (const one of pending) one.reject(error);
        }
      },
    );
  }

  #sendEach(script: KeyScript, pending: readonly PendingScript[]): void {
    for (const { key, args, resolve, reject } of pending) {
      this.#call(script.one, [key], args).then(resolve, reject);
    }
  }

  #call(script: Script, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    return callScript(this.#runner, script, keys, args);
  }
}

function settle({ resolve, reject }: PendingScript, reply: unknown): void {
  const text = String(reply);
  if (text.startsWith("+")) resolve(text.slice(1));
  else reject(new Error(text.slice(1)));
}
