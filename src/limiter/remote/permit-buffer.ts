import type { Amount } from "../../ground/permits.ts";
import type { PolicyList } from "../../stores/policies.ts";
import type { Answer } from "../../stores/store.ts";

/** Permits that the store granted together, for one instant. */
export interface Chunk {
  /** From when they can be used, the clock's microseconds. */
  readonly due: number;
  readonly answer: Answer;
  /** How many permits were granted, and how many of them are still in the buffer. */
  readonly size: number;
  left: number;
}

/** Permits that were drawn from a chunk. */
export interface Part {
  readonly chunk: Chunk;
  readonly permits: number;
}

/** A grant from the buffer; `parts` names the chunks that the permits came from. */
export class BufferGrant implements Answer {
  readonly wait: number;
  readonly receipts: readonly number[] = [];
  readonly slowest = 0;
  readonly quotas = [];
  readonly deficit = [];
  readonly parts: readonly Part[];

  constructor(wait: number, parts: readonly Part[]) {
    this.wait = wait;
    this.parts = parts;
  }
}

/** Permits that the store granted before a caller asked for them, ordered by instant. */
export class PermitBuffer {
  readonly #chunks: Chunk[] = [];
  #left = 0;

  /** How many permits the buffer holds. */
  get left(): number {
    return this.#left;
  }

  /** The chunk that can be used first. */
  get head(): Chunk | undefined {
    return this.#chunks[0];
  }

  add(chunk: Chunk): void {
    const after = this.#chunks.findLastIndex(({ due }) => due <= chunk.due);
    this.#chunks.splice(after + 1, 0, chunk);
    this.#left += chunk.left;
  }

  /** Returns when that many permits can be used; the buffer must hold as many. */
  dueOf(permits: number): number {
    let last = 0;
    let missing = permits;
    for (const { due, left } of this.#chunks) {
      if (missing <= 0) break;
      last = due;
      missing -= left;
    }
    return last;
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

  /** Removes permits from the front. @returns the chunks that they came from */
  draw(permits: number): Part[] {
    return this.#remove(permits, 0);
  }

  /** Puts back permits that were drawn but not used. */
  putBack(parts: readonly Part[]): void {
    for (const { chunk, permits } of parts) {
      const isHere = chunk.left > 0;
      chunk.left += permits;
      if (isHere) this.#left += permits;
      else this.add(chunk);
    }
  }

  /** Removes the permits in excess of that number, the latest first. */
  dropBeyond(permits: number): Part[] {
    return this.#remove(this.#left - permits, -1);
  }

  /** @param end 0: from the front; -1: from the back */
  #remove(permits: number, end: 0 | -1): Part[] {
    const parts: Part[] = [];
    let missing = permits;
    for (let chunk = this.#chunks.at(end); chunk && missing > 0; chunk = this.#chunks.at(end)) {
      const removed = Math.min(missing, chunk.left);
      parts.push({ chunk, permits: removed });
      chunk.left -= removed;
      this.#left -= removed;
      missing -= removed;
      if (chunk.left === 0) this.#chunks.splice(end, 1);
    }
    // fractional permits leave a rounding error in the sum
    if (this.#chunks.length === 0) this.#left = 0;
    return parts;
  }
}

/** Returns the answer that describes a part of a chunk, to give that part back to the store. */
export function answerOf({ chunk: { answer, size }, permits }: Part, { list }: PolicyList): Answer {
  // the permits that are not given back count as drawn from the stored ones first
  const receipts = answer.receipts.map((receipt, i) =>
    list[i]?.algorithm.receiptIsTime || i >= list.length
      ? receipt
      : Math.max(0, receipt - (size - permits)),
  );
  return { ...answer, receipts };
}

/** Returns the permits asked of every policy; `Infinity`, more than any buffer has, if they differ. */
export function permitsOf(amount: Amount): number {
  if (typeof amount === "number") return amount;
  const [first = Infinity] = amount;
  return amount.every((permits) => permits === first) ? first : Infinity;
}
