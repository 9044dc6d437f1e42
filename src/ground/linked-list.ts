/** A member of a list, which is in no other list at the same time. */
export interface Linked<Member> {
  /** Its neighbours; only the list sets them. */
  before: Member | undefined;
  after: Member | undefined;
}

/**
 * A list in the order of addition. Its members hold the links, so that adding and removing one takes one
 * step and creates nothing. A `Set` creates a new table after every few members that come and go.
 */
export class LinkedList<Member extends Linked<Member>> {
  #first: Member | undefined;
  #last: Member | undefined;

  add(member: Member): void {
    member.before = this.#last;
    if (this.#last === undefined) this.#first = member;
    else this.#last.after = member;
    this.#last = member;
  }

  /** @returns whether it was a member */
  remove(member: Member): boolean {
    const { before, after } = member;
    if (before === undefined && member !== this.#first) return false;
    if (before === undefined) this.#first = after;
    else before.after = after;
    if (after === undefined) this.#last = before;
    else after.before = before;
    member.before = undefined;
    member.after = undefined;
    return true;
  }

  /** The members now, as a list that no later change affects. */
  toArray(): Member[] {
    const members: Member[] = [];
    for (let each = this.#first; each !== undefined; each = each.after) members.push(each);
    return members;
  }
}
