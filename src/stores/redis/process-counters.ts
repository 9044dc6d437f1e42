import { oncePerProcess } from "../../ground/copies.ts";
import { ProcessCounter } from "../process-counter.ts";
import { encodeBatchId } from "./answers.ts";
import { ScriptCoalescer } from "./script-coalescer.ts";
import type { ScriptRunner } from "./script-runner.ts";
import { processScript } from "./scripts.ts";

const processId = /* @__PURE__ */ oncePerProcess("process id", () => crypto.randomUUID());

const all = /* @__PURE__ */ oncePerProcess(
  "process counters",
  () => new WeakMap<ScriptRunner, ProcessCounters>(),
);

/** The counters of one client: limiters with the same key share a counter, and a process counts once. */
export class ProcessCounters {
  readonly #coalescer: ScriptCoalescer;
  readonly #counters = new Map<string, WeakRef<ProcessCounter>>();
  readonly #dropped = new FinalizationRegistry<string>((key) => {
    // unless the key has a new counter by now
    if (!this.#counters.get(key)?.deref()) this.#counters.delete(key);
  });

  static of(runner: ScriptRunner): ProcessCounters {
    const counters = all.get(runner) ?? new ProcessCounters(runner);
    all.set(runner, counters);
    return counters;
  }

  private constructor(runner: ScriptRunner) {
    this.#coalescer = ScriptCoalescer.of(runner);
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
