/** The value of an actor by which a rule counts a request. */
export interface ActorValue {
  readonly value: string;
  /** Whether it is the request's own, and not a replacement for a missing one. */
  readonly isOwn: boolean;
}

/** Returns what a rule states for a value of its actor. A replacement is no such value, even if it is written the same. */
export function overrideOf<T>(
  overrides: ReadonlyMap<string, T>,
  { value, isOwn }: ActorValue,
): T | undefined {
  return isOwn && overrides.size > 0 ? overrides.get(value) : undefined;
}
