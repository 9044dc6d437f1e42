interface Warner {
  readonly emitWarning?: (message: string, options: { type: string; code: string }) => void;
}

/**
 * Emits a process warning for the operator.
 *
 * @param code identifies the warning; `node --disable-warning=CODE` mutes it
 */
export function warn(code: string, message: string): void {
  const { process } = globalThis as { readonly process?: Warner };
  process?.emitWarning?.(message, { type: "SmoothLimiterWarning", code });
}
