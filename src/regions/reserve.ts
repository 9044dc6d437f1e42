import type { RemoteLimiter } from "../api/limiter-api.ts";
import { OutageStats } from "../api/outage-stats.ts";
import { CallStats } from "../api/stats.ts";
import { open } from "../redis/options.ts";
import { KeyedRemoteLimiter } from "../remote/keyed-remote-limiter.ts";
import { checkShared, type SharedOptions } from "../remote/remote-options.ts";
import type { PolicyList } from "../stores/policies.ts";
import type { RedisClient } from "../stores/redis/client.ts";
import { luaTwins } from "../stores/redis/lua.gen.ts";
import type { LuaTwin } from "../stores/redis/lua-twin.ts";
import type { Store } from "../stores/store.ts";
import { Feed } from "./feed.ts";
import { partsOf } from "./move.ts";
import { isStore } from "./options.ts";
import type { MemberOptions, Part } from "./part.ts";

/** Calls are counted, and published, by the part. */
class Uncounted extends CallStats {
  override enqueued(): void {}
  override released(): void {}
  override granted(): void {}
  override refused(): void {}
  override expired(): void {}
  override ended(): void {}
  override cancelled(): void {}
}

class ReserveStats extends OutageStats {
  override callStats(names: readonly string[]): CallStats {
    return new Uncounted({ limiter: "" }, names);
  }
}

/** The reserve of a region in its store, for all keys. */
export class Reserve {
  readonly #open: (whole: PolicyList) => KeyedRemoteLimiter;
  readonly #lack: (part: Part) => void;
  readonly #everyMs: number;
  readonly #feeds = new Map<Part, Feed>();
  #limiter: KeyedRemoteLimiter;

  /** @param lack called when the reserve does not serve a caller of the part at once */
  constructor(
    local: Store | RedisClient,
    { name, numbers, reserved, everyMs }: MemberOptions,
    options: Pick<SharedOptions, "prefix" | "clock">,
    lack: (part: Part) => void,
  ) {
    this.#open = (policies) => openReserve(local, name, policies, reserved, options);
    this.#limiter = this.#open(numbers.policies);
    this.#lack = lack;
    this.#everyMs = everyMs;
  }

  of(key: string | undefined): RemoteLimiter {
    return key === undefined ? this.#limiter : this.#limiter.for(key);
  }

  /** Goes on with the permits that are used in the store; calls that are under way end as they would have. */
  update(whole: PolicyList): void {
    this.#limiter = this.#open(whole);
    for (const feed of this.#feeds.values()) feed.renew();
  }

  /** Serves those who wait for the part. */
  feed(part: Part): Feed {
    const known = this.#feeds.get(part);
    if (known !== undefined && !known.isOver) {
      known.changed();
      return known;
    }
    const feed = new Feed(
      part,
      () => this.of(part.key),
      () => this.#lack(part),
      this.#everyMs,
    );
    this.#feeds.set(part, feed);
    void feed.run().then(() => {
      if (this.#feeds.get(part) === feed) this.#feeds.delete(part);
    });
    return feed;
  }

  /** Returns what the reserve is for those who wait for the part; undefined if none waits. */
  feedOf(part: Part): Feed | undefined {
    return this.#feeds.get(part);
  }

  close(): Promise<void> {
    return this.#limiter.close();
  }
}

/** Returns the limiter of a fraction of the policies in a store, which counts no calls. */
function openReserve(
  local: Store | RedisClient,
  name: string,
  { names, list }: PolicyList,
  fraction: number,
  options: Pick<SharedOptions, "prefix" | "clock">,
): KeyedRemoteLimiter {
  const part = { names, list: partsOf(list, fraction) };
  const outageStats = new ReserveStats(name);
  if (isStore(local)) {
    const { prefix, key, options: checked } = checkShared(name, part, options);
    return new KeyedRemoteLimiter(local, prefix + key, part, { ...checked, outageStats });
  }
  const twins = list.map(({ algorithm }) => luaTwins[algorithm.name] as LuaTwin);
  const [store, key, , checked] = open(local, name, part, twins, options);
  return new KeyedRemoteLimiter(store, key, part, { ...checked, outageStats });
}
