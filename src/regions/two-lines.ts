/** A line in which a caller waits: that of its part, or that of the reserve in the region's store. */
export interface Line<T> {
  wait(signal: AbortSignal): Promise<T>;
  /** Whether the caller goes on without this line. */
  canDoWithout(error: unknown): boolean;
  /** The permits came too late: another line had some before. */
  giveBack(): void;
}

/** The reason for which a caller leaves the other line. */
const SERVED = new Error("served elsewhere");

/**
 * Waits in both lines, and leaves the other one when one grants the permits. A refusal counts when no line is left.
 *
 * @param counts what each line counts for its call is corrected here: the caller made one
 * @throws what the lines throw
 */
export function eitherOf<T>(
  lines: readonly Line<T>[],
  isGranted: (answer: T) => boolean,
  signal: AbortSignal | undefined,
  counts: { cancelled: number; refused: number },
): Promise<T> {
  return new Promise((resolve, reject) => {
    const others = new AbortController();
    const leave = () => others.abort(signal?.reason);
    signal?.addEventListener("abort", leave);
    let open = lines.length;
    const refusals: T[] = [];
    const errors: unknown[] = [];
    const end = (settle: () => void, refused: number) => {
      counts.refused -= refusals.length - refused;
      counts.cancelled -= open;
      open = 0;
      signal?.removeEventListener("abort", leave);
      settle();
      others.abort(SERVED);
    };
    const endWithout = () => {
      const [refusal] = refusals;
      if (refusal === undefined) end(() => reject(errors[0]), 0);
      else end(() => resolve(refusal), 1);
    };
    for (const line of lines) {
      const answered = (answer: T) => {
        const granted = isGranted(answer);
        if (open === 0) {
          if (granted) line.giveBack();
          return;
        }
        open -= 1;
        if (granted) {
          end(() => resolve(answer), 0);
          return;
        }
        refusals.push(answer);
        if (open === 0) endWithout();
      };
      const failed = (error: unknown) => {
        if (open === 0) return;
        open -= 1;
        errors.push(error);
        if (!line.canDoWithout(error)) end(() => reject(error), 0);
        else if (open === 0) endWithout();
      };
      line.wait(others.signal).then(answered, failed);
    }
  });
}
