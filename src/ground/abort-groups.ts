/**
 * Registers one listener for each signal, however many members share it. Adding the n-th listener
 * to a signal takes n steps, so a listener for each of n waiters would take n² steps in all.
 */
export class AbortGroups<Member> {
  readonly #groups = new WeakMap<AbortSignal, Set<Member>>();
  readonly #onAbort: (member: Member, reason: unknown) => void;

  constructor(onAbort: (member: Member, reason: unknown) => void) {
    this.#onAbort = onAbort;
  }

  add(signal: AbortSignal, member: Member): void {
    let group = this.#groups.get(signal);
    if (group === undefined) {
      group = new Set();
      this.#groups.set(signal, group);
      signal.addEventListener("abort", this);
    }
    group.add(member);
  }

  delete(signal: AbortSignal, member: Member): void {
    const group = this.#groups.get(signal);
    if (group?.delete(member) && group.size === 0) {
      this.#groups.delete(signal);
      signal.removeEventListener("abort", this);
    }
  }

  /** Called when a signal is aborted. */
  handleEvent({ target }: Event): void {
    const signal = target as AbortSignal;
    for (const member of this.#groups.get(signal) ?? []) this.#onAbort(member, signal.reason);
  }
}
