/**
 * How to test your own code. A mailer sends at most one newsletter every ten seconds and lets at most a hundred wait.
 * Its limiter runs on a FakeClock, so a whole day takes some milliseconds.
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

const HOUR_MS = 3_600_000;
const startedAt = performance.now();

const clock = new FakeClock();
const mailer = new Mailer(clock);

// one newsletter goes at once, a hundred wait, and the next is refused
const first = Array.from({ length: 101 }, (_, i) => mailer.send(`reader ${i}`));
await assert.rejects(mailer.send("one too many"), QueueFullError);
assert.equal(mailer.sent.length, 1);

await clock.advance(HOUR_MS);
await Promise.all(first);
assert.equal(
  mailer.sent.at(-1)?.atMs,
  100 * 10_000,
  "the hundredth waiting newsletter goes after 1000 s",
);

// for the rest of the day one newsletter every half minute: none of them waits
for (let i = 0; i < 23 * 120; i += 1) {
  await mailer.send(`subscriber ${i}`);
  await clock.advance(30_000);
}
assert.equal(clock.now(), 24 * HOUR_MS);
assert.equal(mailer.sent.length, 101 + 23 * 120);

const gaps = mailer.sent.map(({ atMs }, i) => atMs - (mailer.sent[i - 1]?.atMs ?? -Infinity));
assert.equal(Math.min(...gaps), 10_000, "never two within ten seconds");

const realMs = Math.round(performance.now() - startedAt);
console.log(`A day of newsletters: ${mailer.sent.length} sent, never two within ten seconds.`);
console.log(`24 hours took ${realMs} ms.`);
