/**
 * First in, first out; any member may leave. Every operation takes one step, however long the
 * queue.
 */
export class Fifo<Member> {
  readonly #members = new Set<Member>();
  /**
   * One iterator for the queue's lifetime. A new one would step over every member that has left
   * since the set last compacted itself, so a queue of n would take n² steps.
   */
  readonly #heads = this.#members.values();
  #head: Member | undefined;

  get size(): number {
    return this.#members.size;
  }

  /** The member that came first. */
  get head(): Member | undefined {
    // an iterator that has reached its end does not see later members
    if (this.#head === undefined && this.#members.size > 0) this.#head = this.#heads.next().value;
    return this.#head;
  }

  [Symbol.iterator](): Iterator<Member> {
    return this.#members.values();
  }

  has(member: Member): boolean {
    return this.#members.has(member);
  }

  append(member: Member): void {
    this.#members.add(member);
  }

  /** @returns whether it was a member */
  remove(member: Member): boolean {
    if (member === this.#head) this.#head = undefined;
    return this.#members.delete(member);
  }

  shift(): Member | undefined {
    const { head } = this;
    if (head !== undefined) this.remove(head);
    return head;
  }
}
