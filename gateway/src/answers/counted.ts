import type { Count } from "../rules/rule.ts";

/** Which requests count, by the statuses of their responses. */
export const COUNTS = {
  all: () => true,
  failures: (status: number) => status >= 400,
  successes: (status: number) => status < 400,
} as const;

/** Whether a request with that status counts. */
export function counts(count: Count, status: number): boolean {
  return typeof count === "string" ? COUNTS[count](status) : count.status.includes(status);
}
