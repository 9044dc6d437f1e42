import type { Exchange } from "../ledger.ts";
import { encodeBatchId } from "./answers.ts";
import { explain, LIMITER_STATE } from "./explain.ts";
import { coalescerOf } from "./script-coalescer.ts";
import type { ScriptRunner } from "./script-runner.ts";
import { ledgerScript } from "./scripts.ts";

/** Returns the ledgers of a client. Messages for several keys that are sent in one tick share a call. */
export function redisLedger(runner: ScriptRunner): Exchange {
  const coalescer = coalescerOf(runner);
  return async (key, message) => {
    try {
      return String(await coalescer.run(ledgerScript, key, message, encodeBatchId(undefined)));
    } catch (error) {
      // the call may have failed for the key of another message
      const all = `${key.replace(/\[.*$/s, "")}*`;
      throw await explain(runner, LIMITER_STATE, [key], error, [all]);
    }
  };
}
