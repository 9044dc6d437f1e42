// One of the processes that share a limit during a fault. It asks for permits in several ways, and reports
// what it was granted, how long that took, and what is left behind.

import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { RateLimiter } from "smooth-limiter";
import { type RedisClient, RedisRateLimiter, StoreUnavailableError } from "smooth-limiter/redis";
import { Heartbeat } from "./heartbeat.ts";
import {
  BURST_SECONDS,
  type Holdings,
  LARGEST,
  type Message,
  MODES,
  type Mode,
  monotonicMs,
  type News,
  RATE,
  type Report,
  STORE,
  TIMEOUT_MS,
  WAITERS,
  type Watched,
  WORKERS,
} from "./limits.ts";
import { Watch } from "./watch.ts";

/** How long callers may still wait after the end, ms. */
const END_WAIT_MS = 4000;
/** How long timers may still run after that, ms. */
const SETTLING_MS = 3000;

class Crowd {
  readonly #redis: Redis;
  readonly #heartbeat: Heartbeat;
  readonly #limiters: Readonly<Record<Mode, RedisRateLimiter>>;
  readonly #used: Record<Mode, number[]> = { local: [], throw: [], wait: [] };
  /** A limiter that never had a Redis: its calls show what the process itself costs. */
  readonly #beside = RateLimiter.create(RATE / WORKERS);
  readonly #watches: Readonly<Record<Watched, Watch>>;
  readonly #before: Holdings;
  readonly #bornAt = monotonicMs();
  readonly #callers: Promise<void>[] = [];
  #stopped = false;
  #asking = 0;
  #failure: unknown;

  constructor(
    redis: Redis,
    name: string,
    heartbeat: Heartbeat,
    tell: (isUnavailable: boolean) => void,
  ) {
    this.#redis = redis;
    this.#heartbeat = heartbeat;
    this.#before = holdings(redis);
    const limiterOf = (whenUnavailable: Mode) =>
      RedisRateLimiter.create(redis as RedisClient, `${name}, ${whenUnavailable}`, RATE, {
        ...{ burstSeconds: BURST_SECONDS, timeoutMs: TIMEOUT_MS, whenUnavailable },
        ...(whenUnavailable === "local" && { instances: WORKERS }),
      });
    this.#limiters = {
      local: limiterOf("local"),
      throw: limiterOf("throw"),
      wait: limiterOf("wait"),
    };
    this.#watches = {
      local: new Watch(heartbeat, tell),
      throw: new Watch(heartbeat),
      beside: new Watch(heartbeat),
    };
    for (let i = 0; i < WAITERS; i++) for (const mode of MODES) this.#call(() => this.#wait(mode));
    for (let i = 0; i < 2; i++) this.#call(() => this.#look("local"));
    this.#call(() => this.#look("throw"));
  }

  #call(ask: () => Promise<void>): void {
    const caller = async () => {
      this.#asking += 1;
      while (!this.#stopped) await ask();
      this.#asking -= 1;
    };
    this.#callers.push(
      caller().catch((error: unknown) => {
        this.#failure ??= error;
      }),
    );
  }

  async #wait(mode: Mode): Promise<void> {
    const permits = 1 + Math.floor(LARGEST * Math.random());
    try {
      await this.#limiters[mode].acquire(permits);
      this.#use(mode, permits);
    } catch (error) {
      if (mode !== "throw" || !(error instanceof StoreUnavailableError)) throw error;
      await sleep(20);
    }
  }

  /** Calls `decide()`, which does not wait for permits, four times in a row. */
  async #look(mode: "local" | "throw"): Promise<void> {
    const watch = this.#watches[mode];
    for (let i = 0; i < 4; i++) {
      if (mode === "local") await this.#lookBeside();
      const call = watch.begin();
      try {
        const { allowed, limit } = await this.#limiters[mode].decide();
        // without Redis the limit is this process' share, which is smaller
        watch.end(call, limit < STORE);
        if (allowed) this.#use(mode, 1);
      } catch (error) {
        if (mode !== "throw" || !(error instanceof StoreUnavailableError)) throw error;
        watch.end(call, true);
      }
    }
    await sleep(watch.isUnavailable ? 3 : 15);
  }

  /** Times the same call at the same moment on the limiter without Redis. */
  async #lookBeside(): Promise<void> {
    const watch = this.#watches.beside;
    const ask = async () => this.#beside.decide();
    const call = watch.begin();
    await ask();
    watch.end(call, this.#watches.local.isUnavailable);
  }

  #use(mode: Mode, permits: number): void {
    const now = monotonicMs();
    for (let i = 0; i < permits; i++) this.#used[mode].push(now);
  }

  get holdings(): Holdings {
    return holdings(this.#redis);
  }

  /** Waits until the last timers have ended: permits of cancelled calls are still given back, which takes a moment. */
  async #left(): Promise<Holdings> {
    const end = performance.now() + SETTLING_MS;
    for (;;) {
      await sleep(100);
      const after = this.holdings;
      if (after.timers <= this.#before.timers || performance.now() > end) return after;
    }
  }

  async end(): Promise<Report> {
    this.#stopped = true;
    const waiting = new AbortController();
    await Promise.race([
      Promise.all(this.#callers),
      sleep(END_WAIT_MS, undefined, { signal: waiting.signal }).catch(() => {}),
    ]);
    waiting.abort();
    if (this.#failure !== undefined) throw this.#failure;
    const stalledMs = await this.#heartbeat.stop();
    const after = await this.#left();
    this.#redis.disconnect();
    return {
      bornAt: this.#bornAt,
      used: this.#used,
      watches: {
        local: this.#watches.local.report(),
        throw: this.#watches.throw.report(),
        beside: this.#watches.beside.report(),
      },
      ...{ hung: this.#asking, stalledMs, before: this.#before, after },
    };
  }
}

function holdings(redis: Redis): Holdings {
  globalThis.gc?.();
  const resources = process.getActiveResourcesInfo();
  return {
    heap: process.memoryUsage().heapUsed,
    timers: resources.filter((kind) => kind === "Timeout").length,
    listeners: redis.eventNames().reduce((sum, name) => sum + redis.listenerCount(name), 0),
  };
}

function tell(news: News): void {
  process.send?.(news);
}

/** Carries out the messages of the process that forked this one. */
function work(): void {
  let crowd: Crowd | undefined;
  const heed = async (message: Message) => {
    if (message === "hold") {
      if (crowd !== undefined) tell({ holdings: crowd.holdings });
    } else if (message === "end") {
      const report = await crowd?.end();
      crowd = undefined;
      if (report !== undefined) tell({ report });
    } else {
      const { url, name, socketTimeout, retryMs } = message.order;
      const redis = new Redis(url, { retryStrategy: () => retryMs, socketTimeout });
      redis.on("error", () => {});
      await redis.ping();
      crowd = new Crowd(redis, name, await Heartbeat.start(), (isUnavailable) =>
        tell({ isUnavailable }),
      );
      tell("asking");
    }
  };
  process.on("disconnect", () => process.exit());
  process.on("message", (message: Message) => {
    heed(message).catch((error: unknown) => tell({ failure: String(error) }));
  });
  tell("here");
}

work();
