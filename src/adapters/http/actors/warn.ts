interface Warner {
  readonly emitWarning?: (message: string, options: { type: string; code: string }) => void;
}

/**
 * A warning to the operator: of the process where there is one, on the console elsewhere.
 *
 * @param code for whoever listens, or mutes it: `node --disable-warning=CODE`
 */
export function warn(code: string, message: string): void {
  const { process } = globalThis as { readonly process?: Warner };
  if (process?.emitWarning === undefined) console.warn(`${code}: ${message}`);
  else process.emitWarning(message, { type: "SmoothLimiterWarning", code });
}
