/** A member of a list, which is in no other list at the same time. */
export interface Linked<Member> {
  /** Its neighbours; only the list sets them. */
  before: Member | undefined;
  after: Member | undefined;
}

/**
 * A list that keeps its links in its members: adding and removing one takes one step and allocates nothing.
 * A `Set` allocates a new table after every few additions and removals.
 */
export class LinkedList<Member extends Linked<Member>> {
  /** The members at both ends; only the list sets them. */
  first: Member | undefined = undefined;
  last: Member | undefined = undefined;

  /** Adds a member behind all others. */
  add(member: Member): void {
    this.insert(member, this.last);
  }

  /** @param before the member in front of it; `undefined`: it becomes the first */
  insert(member: Member, before: Member | undefined): void {
    const after = before === undefined ? this.first : before.after;
    member.before = before;
    member.after = after;
    if (before === undefined) this.first = member;
    else before.after = member;
    if (after === undefined) this.last = member;
    else after.before = member;
  }

  has(member: Member): boolean {
    return member.before !== undefined || member === this.first;
  }

  remove(member: Member): void {
    const { before, after } = member;
    if (before === undefined) this.first = after;
    else before.after = after;
    if (after === undefined) this.last = before;
    else after.before = before;
    // a caller that keeps the member must not keep the others
    member.before = undefined;
    member.after = undefined;
  }

  *[Symbol.iterator](): Generator<Member> {
    for (let each = this.first; each !== undefined; each = each.after) yield each;
  }
}
