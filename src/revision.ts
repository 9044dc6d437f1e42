let renumberings = 0;

/** A limiter of this process is given other numbers. */
export function noteRenumbering(): void {
  renumberings += 1;
}

/**
 * How often limiters of this process were given other numbers. A holder of permits compares two counts
 * to learn, at no cost, whether its limiter may have another pace.
 */
export function timesRenumbered(): number {
  return renumberings;
}
