/** First in, first out, and anybody may leave; one step each, however many there are. */
export class Fifo<Member> {
  readonly #members = new Set<Member>();
  /**
   * Kept from one call to the next: a new iterator would step over everyone who has left since the
   * set was last tidied up, which makes the whole line cost its square.
   */
  readonly #heads = this.#members.values();

  get size(): number {
    return this.#members.size;
  }

  append(member: Member): void {
    this.#members.add(member);
  }

  /** @returns whether it was there */
  remove(member: Member): boolean {
    return this.#members.delete(member);
  }

  shift(): Member | undefined {
    // an iterator that has come to its end would stay there
    if (this.#members.size === 0) return undefined;
    const { value } = this.#heads.next();
    if (value !== undefined) this.#members.delete(value);
    return value;
  }
}
