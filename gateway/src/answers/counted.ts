/** Which requests count, by the statuses of their responses. */
export const COUNTS = {
  all: () => true,
  failures: (status: number) => status >= 400,
  successes: (status: number) => status < 400,
} as const;
