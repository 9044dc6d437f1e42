import { onNode } from "../ground/node-process.ts";

/**
 * Emits a process warning for the operator.
 *
 * @param code identifies the warning; `node --disable-warning=CODE` mutes it
 */
export function warn(code: string, message: string): void {
  onNode((process) => process.emitWarning?.(message, { type: "SmoothLimiterWarning", code }));
}
