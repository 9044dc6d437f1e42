interface Warner {
  readonly emitWarning?: (message: string, options: { type: string; code: string }) => void;
}

/**
 * A warning of the process to the operator.
 *
 * @param code for listeners, and to mute it: `node --disable-warning=CODE`
 */
export function warn(code: string, message: string): void {
  const { process } = globalThis as { readonly process?: Warner };
  process?.emitWarning?.(message, { type: "SmoothLimiterWarning", code });
}
