/**
 * Sends a script again if a Cluster client returns a redirection instead of following it, as ioredis does
 * with `enableAutoPipelining`: it does not resend a pipeline with commands that are redirected to
 * different nodes, and does not refresh its table of slots. A redirection means that the server has run
 * nothing, so a script is never run twice.
 */
const REDIRECTION = /(?:^|: )(?:MOVED|ASK) \d+ |(?:^|: )TRYAGAIN /;

/** How often a script is sent again, and the pause before that, ms: each pause is twice the previous. */
const MOST_REDIRECTIONS = 6;
const FIRST_PAUSE_MS = 10;
/** How long to wait for the new table of slots, ms. */
const REFRESH_MS = 500;

/** The method of the ioredis Cluster client that refreshes its table of slots. */
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
        // wrapped, so that it does not count as permanent: the migration of the slot ends some time
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

  /** Refreshes the table of slots, once for all scripts that are redirected meanwhile. */
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
