/**
 * Registers one listener for each signal, however many members share it. Adding the n-th listener
 * to a signal takes n steps, so a listener for each of n waiters would take n² steps in all.
 */
export class AbortGroups<Member> {
  readonly #groups = new WeakMap<AbortSignal, Group<Member>>();
  readonly #onAbort: (member: Member, reason: unknown) => void;

  constructor(onAbort: (member: Member, reason: unknown) => void) {
    this.#onAbort = onAbort;
  }

  add(signal: AbortSignal, member: Member): void {
    let group = this.#groups.get(signal);
    if (group === undefined) {
      group = groupOf(signal, this.#onAbort);
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

/** The members that share a signal, as its listener. */
interface Group<Member> {
  readonly members: Set<Member>;
  handleEvent(): void;
}

function groupOf<Member>(
  signal: AbortSignal,
  onAbort: (member: Member, reason: unknown) => void,
): Group<Member> {
  const members = new Set<Member>();
  return {
    members,
    handleEvent() {
      for (const member of members) onAbort(member, signal.reason);
    },
  };
}
