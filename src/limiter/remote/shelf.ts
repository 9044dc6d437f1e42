import type { Answer } from "../../stores/store.ts";

/** Permits that a store granted together, for one instant. */
export interface Piece {
  /** From when they can be used, the clock's microseconds. */
  readonly due: number;
  readonly answer: Answer;
  /** How many were granted, and how many of them are here. */
  readonly size: number;
  left: number;
}

/** What was drawn from a piece. */
export interface Part {
  readonly piece: Piece;
  readonly permits: number;
}

/** Permits that are there before anybody has asked for them, the earliest in front. */
export class Shelf {
  #pieces: Piece[] = [];
  #first = 0;
  #left = 0;

  /** How many permits are here. */
  get left(): number {
    return this.#left;
  }

  /** What can be used first. */
  get head(): Piece | undefined {
    return this.#pieces[this.#first];
  }

  add(piece: Piece): void {
    this.#left += piece.left;
    let low = this.#first;
    let high = this.#pieces.length;
    if ((this.#pieces.at(-1)?.due ?? 0) <= piece.due) low = high;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      if ((this.#pieces[middle] as Piece).due > piece.due) high = middle;
      else low = middle + 1;
    }
    if (low === this.#pieces.length) this.#pieces.push(piece);
    else this.#pieces.splice(low, 0, piece);
  }

  /** From when so many permits, which are here, can be used. */
  dueOf(permits: number): number {
    let due = 0;
    let missing = permits;
    for (let i = this.#first; missing > 0 && i < this.#pieces.length; i++) {
      const piece = this.#pieces[i] as Piece;
      due = piece.due;
      missing -= piece.left;
    }
    return due;
  }

  /** How many permits can be used by then. */
  readyAt(instant: number): number {
    let ready = 0;
    for (let i = this.#first; i < this.#pieces.length; i++) {
      const { due, left } = this.#pieces[i] as Piece;
      if (due > instant) break;
      ready += left;
    }
    return ready;
  }

  /**
   * Takes them from the front.
   *
   * @param parts filled with where they came from
   */
  draw(permits: number, parts?: Part[]): void {
    let missing = permits;
    for (let piece = this.head; piece !== undefined; piece = this.head) {
      const drawn = Math.min(missing, piece.left);
      parts?.push({ piece, permits: drawn });
      piece.left -= drawn;
      this.#left -= drawn;
      missing -= drawn;
      if (piece.left > 0) return;
      this.#first += 1;
      if (missing <= 0) break;
    }
    this.#tidy();
  }

  /** They were not used after all. */
  putBack(parts: readonly Part[]): void {
    for (const { piece, permits } of parts) {
      const isHere = piece.left > 0;
      piece.left += permits;
      if (isHere) this.#left += permits;
      else this.add(piece);
    }
  }

  /** Takes away what is more than that, the last of it first. */
  dropBeyond(permits: number): Part[] {
    const parts: Part[] = [];
    while (this.#left > permits && this.#first < this.#pieces.length) {
      const piece = this.#pieces.pop() as Piece;
      const dropped = Math.min(piece.left, this.#left - permits);
      parts.push({ piece, permits: dropped });
      piece.left -= dropped;
      this.#left -= dropped;
      if (piece.left > 0) this.#pieces.push(piece);
    }
    this.#tidy();
    return parts;
  }

  #tidy(): void {
    if (this.#first < this.#pieces.length / 2) return;
    this.#pieces = this.#pieces.slice(this.#first);
    this.#first = 0;
    // sums of fractions are rounded
    if (this.#pieces.length === 0) this.#left = 0;
  }
}
