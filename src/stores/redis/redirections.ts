/**
 * Sends a script again where the client of a Cluster hands on a redirection instead of following it,
 * as ioredis does with `enableAutoPipelining`: a pipeline whose commands are redirected to different
 * places is not sent again, and the table of slots stays as it was. A redirection says that nothing
 * was run, so a script is never run twice.
 */
const REDIRECTION = /(?:^|: )(?:MOVED|ASK) \d+ |(?:^|: )TRYAGAIN /;

/** How often a script is sent again, and the pause before that, ms: each twice the one before. */
const MOST_REDIRECTIONS = 6;
const FIRST_PAUSE_MS = 10;
/** How long the new table of slots is waited for, ms. */
const REFRESH_MS = 500;

/** What the Cluster of ioredis can do. */
interface Refreshing {
  refreshSlotsCache?(done: () => void): void;
}

export class Redirections {
  readonly #cluster: Refreshing;
  #refresh: Promise<void> | undefined;

  /** @param cluster the client */
  constructor(cluster: object) {
    this.#cluster = cluster;
  }

  /** @param run sends the script */
  follow(run: () => Promise<unknown>): Promise<unknown> {
    return run().catch((error: unknown) => this.#follow(run, error));
  }

  async #follow(run: () => Promise<unknown>, first: unknown): Promise<unknown> {
    let error = first;
    for (let n = 0; isRedirection(error); n++) {
      if (n === MOST_REDIRECTIONS) {
        // a slot that stays on its way is no reason to give up for good
        throw new Error(`redirected ${n} times, the last time by ${error.message}`, {
          cause: error,
        });
      }
      await this.#refreshed();
      if (n > 0) await sleep(FIRST_PAUSE_MS * 2 ** n);
      try {
        return await run();
      } catch (next) {
        error = next;
      }
    }
    throw error;
  }

  /** One refresh for all scripts that are redirected meanwhile. */
  #refreshed(): Promise<void> {
    this.#refresh ??= new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, REFRESH_MS);
      const done = () => {
        clearTimeout(timer);
        resolve();
      };
      if (this.#cluster.refreshSlotsCache === undefined) done();
      else this.#cluster.refreshSlotsCache(done);
    }).finally(() => {
      this.#refresh = undefined;
    });
    return this.#refresh;
  }
}

function isRedirection(error: unknown): error is Error {
  return error instanceof Error && REDIRECTION.test(error.message);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
