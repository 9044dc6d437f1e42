import { oncePerProcess } from "../../ground/copies.ts";
import { ProcessCounter } from "../process-counter.ts";
import { encodeBatchId } from "./answers.ts";
import { onePerClient } from "./per-client.ts";
import { coalescerOf, type ScriptCoalescer } from "./script-coalescer.ts";
import type { ScriptRunner } from "./script-runner.ts";
import { processScript } from "./scripts.ts";

const processId = /* @__PURE__ */ oncePerProcess("process id", () => crypto.randomUUID());

/** Returns the counters of a client. */
export const processCountersOf = /* @__PURE__ */ onePerClient(
  "process counters",
  (runner: ScriptRunner) => new ProcessCounters(runner),
);

/** The counters of one client: limiters with the same key share a counter, and a process counts once. */
export class ProcessCounters {
  readonly #coalescer: ScriptCoalescer;
  readonly #counters = new Map<string, WeakRef<ProcessCounter>>();
  readonly #dropped = new FinalizationRegistry<string>((key) => {
    // unless the key has a new counter by now
    if (!this.#counters.get(key)?.deref()) this.#counters.delete(key);
  });

  constructor(runner: ScriptRunner) {
    this.#coalescer = coalescerOf(runner);
  }

  /** @param limiterKey the whole key of the limiter; no limiter's key has the suffix that is added here */
  counter(limiterKey: string): ProcessCounter {
    const key = `${limiterKey}%processes`;
    const known = this.#counters.get(key)?.deref();
    if (known !== undefined) return known;
    const counter = new ProcessCounter((lifetimeMs) =>
      this.#coalescer
        .run(processScript, key, [processId, String(lifetimeMs)], encodeBatchId(undefined))
        .then(Number),
    );
    this.#counters.set(key, new WeakRef(counter));
    this.#dropped.register(counter, key);
    return counter;
  }
}
