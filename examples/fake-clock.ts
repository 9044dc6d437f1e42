/**
 * How to test your own code. A mailer sends at most one newsletter every ten seconds and lets at most a hundred wait.
 * Its limiter runs on a FakeClock, so hours take some milliseconds.
 */
import assert from "node:assert/strict";
import { type Clock, QueueFullError, RateLimiter, systemClock } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";

/** The code under test. The clock is a parameter; in production it is the system's. */
class Mailer {
  readonly sent: { to: string; atMs: number }[] = [];
  readonly #clock: Clock;
  readonly #limiter: RateLimiter;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
    this.#limiter = RateLimiter.create(1 / 10, { clock, maxWaiting: 100 });
  }

  async send(to: string): Promise<void> {
    await this.#limiter.acquire();
    this.sent.push({ to, atMs: this.#clock.now() });
  }
}

const startedAt = performance.now();
const clock = new FakeClock();
const mailer = new Mailer(clock);

// one newsletter goes at once, a hundred wait, and the next is refused
const first = Array.from({ length: 101 }, (_, i) => mailer.send(`reader ${i}`));
await assert.rejects(mailer.send("one too many"), QueueFullError);
assert.equal(mailer.sent.length, 1);

await clock.advance(3_600_000);
await Promise.all(first);
assert.equal(mailer.sent.at(-1)?.atMs, 1_000_000, "the hundredth waits 1000 s");
const gaps = mailer.sent.slice(1).map(({ atMs }, i) => atMs - (mailer.sent[i]?.atMs ?? 0));
assert.ok(Math.min(...gaps) >= 10_000, "never two within ten seconds");

const realMs = Math.round(performance.now() - startedAt);
console.log(
  `${mailer.sent.length} newsletters in ${clock.now() / 60_000} minutes, which took ${realMs} ms.`,
);
