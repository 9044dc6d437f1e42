import type { Script, ScriptRunner } from "./client.ts";

/** A script about one key, and the same for several. */
export interface KeyScript {
  readonly one: Script;
  readonly many: Script;
}

/** A script keeps everybody else waiting while it runs: more keys than this take another call. */
const MOST_KEYS = 64;

interface Parcel {
  readonly key: string;
  readonly args: readonly string[];
  resolve(reply: unknown): void;
  reject(error: unknown): void;
}

const couriers = new WeakMap<ScriptRunner, Courier>();

/**
 * What is asked in one turn of the event loop about several keys travels as one call, for most of
 * what a call costs is the call. Where the server will not have the keys of one call together, as
 * on Cluster, each goes by itself from then on.
 */
export class Courier {
  readonly #runner: ScriptRunner;
  readonly #parcels = new Map<KeyScript, Parcel[]>();
  #apart = false;

  /** One for all who use the same client. */
  static of(runner: ScriptRunner): Courier {
    const known = couriers.get(runner);
    if (known !== undefined) return known;
    const courier = new Courier(runner);
    couriers.set(runner, courier);
    return courier;
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
      return this.#runner.runScript(script.one, [key, ...others], args);
    }
    return new Promise((resolve, reject) => {
      const parcels = this.#parcels.get(script);
      const parcel = { key, args, resolve, reject };
      if (parcels !== undefined) {
        parcels.push(parcel);
      } else {
        this.#parcels.set(script, [parcel]);
        queueMicrotask(() => this.#leave(script));
      }
    });
  }

  #leave(script: KeyScript): void {
    const parcels = this.#parcels.get(script) as readonly Parcel[];
    this.#parcels.delete(script);
    for (let from = 0; from < parcels.length; from += MOST_KEYS) {
      this.#carry(script, parcels.slice(from, from + MOST_KEYS));
    }
  }

  #carry(script: KeyScript, parcels: readonly Parcel[]): void {
    if (parcels.length === 1) {
      this.#carryEach(script, parcels);
      return;
    }
    const keys = parcels.map(({ key }) => key);
    const args = parcels.flatMap((parcel) => [String(parcel.args.length), ...parcel.args]);
    this.#runner.runScript(script.many, keys, args).then(
      (replies) => {
        parcels.forEach((parcel, i) => {
          deliver(parcel, (replies as readonly unknown[])[i]);
        });
      },
      (error: unknown) => {
        if (/CROSSSLOT|same slot/.test(String(error))) {
          this.#apart = true;
          this.#carryEach(script, parcels);
        } else {
          for (const parcel of parcels) parcel.reject(error);
        }
      },
    );
  }

  #carryEach(script: KeyScript, parcels: readonly Parcel[]): void {
    for (const { key, args, resolve, reject } of parcels) {
      this.#runner.runScript(script.one, [key], args).then(resolve, reject);
    }
  }
}

function deliver({ resolve, reject }: Parcel, reply: unknown): void {
  const text = String(reply);
  if (text.startsWith("+")) resolve(text.slice(1));
  else reject(new Error(text.slice(1)));
}
