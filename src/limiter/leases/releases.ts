/** Gives leases and tickets back to the store. A release that has failed is retried until it is needless. */
import type { Claims } from "./claims.ts";
import type { LeaseLink } from "./lease-link.ts";

export class Releases {
  readonly #link: LeaseLink;
  readonly #leaseMs: number;
  readonly #claims: Claims;
  readonly #retrySoon: () => void;
  /** Those that have failed, each with the time at which the lease lapses by itself, ms. */
  readonly #failed = new Map<string, number>();
  readonly #underWay = new Set<Promise<void>>();

  constructor(link: LeaseLink, leaseMs: number, claims: Claims, retrySoon: () => void) {
    this.#link = link;
    this.#leaseMs = leaseMs;
    this.#claims = claims;
    this.#retrySoon = retrySoon;
  }

  /**
   * Releases the lease or ticket; resolves after the first attempt, which is retried if it fails.
   *
   * @param lapsed when the lease lapses by itself
   */
  giveBack(id: string, lapsed = performance.now() + this.#leaseMs): Promise<void> {
    const release = this.#link
      .ask("release", id)
      .then(
        () => {},
        () => {
          // the claim has been requested again: it may keep its lease or ticket
          if (this.#claims.get(id) !== undefined) return;
          this.#failed.set(id, lapsed);
          this.#retrySoon();
        },
      )
      .finally(() => this.#underWay.delete(release));
    this.#underWay.add(release);
    return release;
  }

  /** Retries those that have failed. */
  retry(now: number): void {
    for (const [id, lapsed] of this.#failed) {
      if (this.#link.isAway && now < lapsed) continue;
      this.#failed.delete(id);
      if (now < lapsed) void this.giveBack(id, lapsed);
    }
  }

  /** Resolves when no release is under way. */
  async done(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }
}
