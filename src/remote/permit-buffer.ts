import type { Amount } from "../ground/permits.ts";
import type { PolicyList } from "../stores/policies.ts";

/** Permits that the store granted together, for one instant. */
export interface Chunk {
  /** From when they can be used, the clock's microseconds. */
  readonly due: number;
  readonly receipts: readonly number[];
  /** How many permits were granted, and how many of them are still in the buffer. */
  readonly size: number;
  left: number;
}

/** Permits that were drawn from a chunk. */
export interface DrawnPermits {
  readonly chunk: Chunk;
  readonly permits: number;
}

/** Permits that the store granted before a caller asked for them, ordered by instant. */
export class PermitBuffer {
  readonly #chunks: Chunk[] = [];
  #left = 0;
  /** From when the permits that were drawn last could be used; -Infinity: none were. */
  drawnDue = -Infinity;

  /** How many permits the buffer holds. */
  get left(): number {
    return this.#left;
  }

  /** The chunk that can be used first. */
  get head(): Chunk | undefined {
    return this.#chunks[0];
  }

  add(chunk: Chunk): void {
    const before = this.#chunks.findLastIndex(({ due }) => due <= chunk.due);
    this.#chunks.splice(before + 1, 0, chunk);
    this.#left += chunk.left;
  }

  /** Returns when that many permits can be used; the buffer must hold as many. */
  dueOf(permits: number): number {
    let missing = permits;
    const last = this.#chunks.find(({ left }) => {
      missing -= left;
      return missing <= 0;
    });
    return (last ?? this.#chunks.at(-1))?.due ?? 0;
  }

  /** Returns how many permits can be used at that instant. */
  readyAt(instant: number): number {
    let ready = 0;
    for (const { due, left } of this.#chunks) {
      if (due > instant) break;
      ready += left;
    }
    return ready;
  }

  /** Removes permits from the front. @param parts receives the chunks that they came from */
  draw(permits: number, parts?: DrawnPermits[]): void {
    let missing = permits;
    for (let { head } = this; head !== undefined && missing > 0; head = this.head) {
      missing -= this.#remove(head, missing, parts);
      this.drawnDue = head.due;
      if (head.left > 0) return;
      this.#chunks.shift();
    }
    this.#round();
  }

  /** Puts back permits that were drawn but not used. */
  putBack(parts: readonly DrawnPermits[]): void {
    for (const { chunk, permits } of parts) {
      const isHere = chunk.left > 0;
      chunk.left += permits;
      if (isHere) this.#left += permits;
      else this.add(chunk);
    }
  }

  /** Removes the permits in excess of that number, the latest first. */
  dropBeyond(permits: number): DrawnPermits[] {
    const parts: DrawnPermits[] = [];
    for (let last = this.#chunks.at(-1); last && this.#left > permits; last = this.#chunks.at(-1)) {
      this.#remove(last, this.#left - permits, parts);
      if (last.left === 0) this.#chunks.pop();
    }
    this.#round();
    return parts;
  }

  /** Removes up to that many permits from a chunk, and returns how many. */
  #remove(chunk: Chunk, most: number, parts?: DrawnPermits[]): number {
    const permits = Math.min(most, chunk.left);
    parts?.push({ chunk, permits });
    chunk.left -= permits;
    this.#left -= permits;
    return permits;
  }

  /** Fractional permits leave a rounding error in the sum. */
  #round(): void {
    if (this.#chunks.length === 0) this.#left = 0;
  }
}

/** Returns the receipts of a part of a chunk, to give that part back to the store. */
export function receiptsOf(
  { chunk: { receipts, size }, permits }: DrawnPermits,
  { list }: PolicyList,
): readonly number[] {
  // the permits that are not given back count as drawn from the stored ones first
  return receipts.map((receipt, i) =>
    list[i]?.algorithm.receiptIsTime || i >= list.length
      ? receipt
      : Math.max(0, receipt - (size - permits)),
  );
}

/** Returns the permits asked of every policy; `Infinity`, more than any buffer has, if they differ. */
export function permitsOf(amount: Amount): number {
  if (typeof amount === "number") return amount;
  const [first = Infinity] = amount;
  return amount.every((permits) => permits === first) ? first : Infinity;
}
