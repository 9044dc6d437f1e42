import { FairEntry } from "../../fair/fair-entry.ts";
import { ShareQueue } from "../../fair/share-queue.ts";
import { sizeOf } from "../../ground/permits.ts";
import { type Job, JobRank } from "./job.ts";

/** The jobs of one priority in a fair queue: first in, first out within each share. */
export class FairRank extends JobRank {
  readonly #queue = new ShareQueue<Job>();
  readonly #turns = new Map<Job, FairEntry<Job>>();

  override append(job: Job): void {
    const { permits = 1, share = "", weight = 1 } = job.options;
    const size = typeof permits === "number" ? permits : sizeOf(Object.values(permits));
    const fairEntry = new FairEntry<Job>(0, share, size, weight);
    fairEntry.item = job;
    job.rank = this;
    this.#turns.set(job, fairEntry);
    this.#queue.append(fairEntry);
    this.first = this.#queue.head?.item;
  }

  override remove(job: Job): void {
    this.#queue.remove(this.#turns.get(job) as FairEntry<Job>);
    this.#forget(job);
  }

  override take(job: Job): void {
    this.#queue.shift();
    this.#forget(job);
  }

  /** The oldest job of the share that asks for most permits. */
  override get oldest(): Job | undefined {
    const [first, ...others] = this.#queue.shares;
    return others.reduce((a, b) => (b.permits > (a?.permits ?? 0) ? b : a), first)?.first?.item;
  }

  override *[Symbol.iterator](): Generator<Job> {
    const forecast = this.#queue.forecast();
    for (let { head } = forecast; head !== undefined; head = forecast.head) {
      forecast.shift(true);
      yield head.item as Job;
    }
  }

  #forget(job: Job): void {
    job.rank = undefined;
    this.#turns.delete(job);
    this.first = this.#queue.head?.item;
  }
}
