import { QueueFullError, StoreUnavailableError } from "../ground/errors.ts";

/** A line in which a caller waits: that of its part, or that of the reserve in the region's store. */
export interface Line<T> {
  wait(signal: AbortSignal): Promise<T>;
  /** Whether the caller goes on without this line. */
  canDoWithout(error: unknown): boolean;
  /** The permits came too late: another line had some before. */
  giveBack(): void;
}

/** What limiters count of their calls. */
interface Counts {
  granted: number;
  refused: number;
  cancelled: number;
  failed: number;
  waiting: number;
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
  counts: Counts,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const others = new AbortController();
    const leave = () => others.abort(signal?.reason);
    signal?.addEventListener("abort", leave);
    let open = 0;
    const refusals: T[] = [];
    const errors: unknown[] = [];
    /** In each open line one call waits, and together they are one. */
    const setOpen = (lines: number) => {
      counts.waiting += Math.max(0, open - 1) - Math.max(0, lines - 1);
      open = lines;
    };
    const end = (settle: () => void) => {
      counts.cancelled -= open;
      setOpen(0);
      signal?.removeEventListener("abort", leave);
      settle();
      others.abort(SERVED);
    };
    const grant = (answer: T) => {
      for (const error of errors) uncount(error, counts);
      counts.refused -= refusals.length;
      end(() => resolve(answer));
    };
    const endWithout = () => {
      const [refusal] = refusals;
      const [final, ...rest] = errors;
      for (const error of rest) uncount(error, counts);
      if (refusal === undefined) {
        end(() => reject(final));
        return;
      }
      uncount(final, counts);
      counts.refused -= refusals.length - 1;
      end(() => resolve(refusal));
    };
    setOpen(lines.length);
    for (const line of lines) {
      const answered = (answer: T) => {
        const granted = isGranted(answer);
        if (open === 0) {
          if (!granted) return;
          counts.granted -= 1;
          counts.cancelled += 1;
          line.giveBack();
          return;
        }
        setOpen(open - 1);
        if (granted) {
          grant(answer);
          return;
        }
        refusals.push(answer);
        if (open === 0) endWithout();
      };
      const failed = (error: unknown) => {
        if (open === 0) return;
        setOpen(open - 1);
        if (!line.canDoWithout(error)) {
          end(() => reject(error));
          return;
        }
        errors.push(error);
        if (open === 0) endWithout();
      };
      line.wait(others.signal).then(answered, failed);
    }
  });
}

/** The line has counted its error, and the caller does not see it. */
export function uncount(error: unknown, counts: Pick<Counts, "failed" | "refused">): void {
  if (error instanceof QueueFullError) counts.refused -= 1;
  if (error instanceof StoreUnavailableError) counts.failed -= 1;
}
