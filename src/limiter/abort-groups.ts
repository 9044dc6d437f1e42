/**
 * Who listens to which signal, with one listener for each signal: adding the n-th listener to a
 * signal costs n steps, so that a signal shared by many waiters would cost the square of their
 * number.
 */
export class AbortGroups<Member> {
  readonly #groups = new Map<AbortSignal, Group<Member>>();
  readonly #onAbort: (member: Member, reason: unknown) => void;

  constructor(onAbort: (member: Member, reason: unknown) => void) {
    this.#onAbort = onAbort;
  }

  add(signal: AbortSignal, member: Member): void {
    let group = this.#groups.get(signal);
    if (group === undefined) {
      group = new Group(signal, this.#onAbort);
      this.#groups.set(signal, group);
      signal.addEventListener("abort", group);
    }
    group.members.add(member);
  }

  delete(signal: AbortSignal, member: Member): void {
    const group = this.#groups.get(signal);
    if (group?.members.delete(member) && group.members.size === 0) {
      this.#groups.delete(signal);
      signal.removeEventListener("abort", group);
    }
  }
}

class Group<Member> {
  readonly members = new Set<Member>();
  readonly #signal: AbortSignal;
  readonly #onAbort: (member: Member, reason: unknown) => void;

  constructor(signal: AbortSignal, onAbort: (member: Member, reason: unknown) => void) {
    this.#signal = signal;
    this.#onAbort = onAbort;
  }

  handleEvent(): void {
    for (const member of this.members) this.#onAbort(member, this.#signal.reason);
  }
}
