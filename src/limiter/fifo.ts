/** First in, first out, and anybody may leave; one step each, however many there are. */
export class Fifo<Member> {
  readonly #members = new Set<Member>();
  /**
   * Kept from one call to the next: a new iterator would step over everyone who has left since the
   * set was last tidied up, which makes the whole line cost its square.
   */
  readonly #heads = this.#members.values();
  #head: Member | undefined;

  get size(): number {
    return this.#members.size;
  }

  /** Who came first of those who are here. */
  get head(): Member | undefined {
    // an iterator that has come to its end would stay there
    if (this.#head === undefined && this.#members.size > 0) this.#head = this.#heads.next().value;
    return this.#head;
  }

  [Symbol.iterator](): Iterator<Member> {
    return this.#members.values();
  }

  append(member: Member): void {
    this.#members.add(member);
  }

  /** @returns whether it was there */
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
