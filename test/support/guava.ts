/**
 * Replays recorded runs of Guava's RateLimiter on a limiter of this library, and reports where the
 * two differ. `fixtures/guava/README.md` describes the recordings and how they are compared.
 */
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import type { Clock, Decision, Timer } from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";

export interface Step {
  /** "tryAcquire 1 200000" */
  readonly operation: string;
  /** What the original answered: "true 200000". */
  readonly original: string;
}

export interface History {
  /** "trace 7", or the title of a fixed scenario. */
  readonly name: string;
  /** The class; "named" for the fixed scenarios. */
  readonly kind: string;
  readonly steps: readonly Step[];
}

/** What a replay needs of a limiter, in this process or on a store. */
export interface Subject {
  acquire(permits: number): Promise<number>;
  tryAcquire(permits: number, timeoutMs: number): Promise<boolean>;
  reserve(permits: number): { waitMs: number } | Promise<{ waitMs: number }>;
  peek(permits: number): Decision | Promise<Decision>;
  setRate(permitsPerSecond: number): unknown;
  getRate(): number | Promise<number>;
}

/** A `create…` line in this library's terms. */
export interface Creation {
  readonly burstSeconds?: number;
  readonly warmupMs?: number;
  readonly coldFactor?: number;
  readonly clock: Clock;
}

export type Create = (rate: number, creation: Creation) => Subject | Promise<Subject>;

/** Where a replay ended, and why. */
export interface Outcome {
  /**
   * "end": all of it agrees. "close call": one answers yes, the other no, but instant and deadline
   * lie so close together that both are right; from there on the two differ. "differs": see the
   * last three fields.
   */
  readonly left: "end" | "close call" | "differs";
  /** How many steps agreed until then. */
  readonly agreed: number;
  /** The step at which the replay ended. */
  readonly operation?: string;
  readonly original?: string;
  readonly ours?: string;
}

/** In the original up to three costs per grant are truncated to whole microseconds. */
const CUT_PER_GRANT = 3;

/**
 * The original's getRate returns 1e6 / (1e6 / rate), which may miss the rate by this share of it.
 */
const RATE_CUT = 1e-14;

export function readHistories(file: URL): History[] {
  const bytes = readFileSync(file);
  const text = String(file.pathname.endsWith(".gz") ? gunzipSync(bytes) : bytes);
  const histories: { name: string; kind: string; steps: Step[] }[] = [];
  for (const line of text.split("\n")) {
    const [operation = "", original] = line.split("\t");
    if (line.startsWith("# ")) {
      const [name = "", kind = "named"] = line.slice(2).split(" class=");
      histories.push({ name, kind, steps: [] });
    } else if (original !== undefined) {
      histories.at(-1)?.steps.push({ operation, original });
    }
  }
  // a heading without a history is a remark about the file
  return histories.filter(({ steps }) => steps.length > 0);
}

export async function replay(history: History, create: Create): Promise<Outcome> {
  let run: Run | undefined;
  let agreed = 0;
  for (const { operation, original } of history.steps) {
    const answer = await attempt(async () => {
      const [verb = "", ...args] = operation.split(" ");
      if (verb.startsWith("create")) {
        run = undefined;
        run = await Run.start(verb, args, create);
        return "ok";
      }
      if (run === undefined) throw new Error("the limiter was refused");
      return run.answer(verb, args.map(Number), original);
    });
    const bothRefuse = answer.startsWith("error") && original.startsWith("error");
    if (answer !== original && !bothRefuse) {
      const left = answer === CLOSE_CALL ? answer : "differs";
      return { left, agreed, operation, original, ours: answer };
    }
    agreed += 1;
  }
  return { left: "end", agreed };
}

const CLOSE_CALL = "close call";

async function attempt(action: () => Promise<string>): Promise<string> {
  try {
    return await action();
  } catch (error) {
    return `error ${error}`;
  }
}

/** One limiter and its clock, from one `create…` line to the next. */
class Run {
  readonly #subject: Subject;
  readonly #clock: ReplayClock;
  #grants = 0;
  #rate: number;

  private constructor(subject: Subject, clock: ReplayClock, rate: number) {
    this.#subject = subject;
    this.#clock = clock;
    this.#rate = rate;
  }

  static async start(verb: string, args: readonly string[], create: Create): Promise<Run> {
    const startMicros = verb === "createAt" ? Number(args[0]) : 0;
    const [kind, ...numbers] = verb === "createAt" ? args.slice(1) : args;
    const [rate = Number.NaN, second, third] = numbers.map(Number);
    const clock = new ReplayClock(startMicros);
    const options =
      kind === "warmup"
        ? { warmupMs: Number(second) / 1000, coldFactor: Number(third) }
        : kind === "burstySeconds"
          ? { burstSeconds: Number(second) }
          : {};
    return new Run(await create(rate, { ...options, clock }), clock, rate);
  }

  /** Our answer in the original's format: the original's own words where ours agrees. */
  async answer(verb: string, args: readonly number[], original: string): Promise<string> {
    const [first = Number.NaN, second = Number.NaN] = args;
    switch (verb) {
      case "advance":
        await this.#clock.advance(first);
        return "ok";
      case "now":
        return this.#near(this.#clock.micros, Number(original))
          ? original
          : `${this.#clock.micros}`;
      case "acquire":
        return this.#acquire(first, original);
      case "reserve":
        return this.#reserve(first, original);
      case "tryAcquire":
        return this.#tryAcquire(first, second, original);
      case "setRate":
        await this.#subject.setRate(first);
        this.#rate = first;
        return "ok";
      case "getRate":
        return this.#getRate(Number(original), original);
      default:
        throw new Error(`unknown operation ${verb}`);
    }
  }

  async #acquire(permits: number, original: string): Promise<string> {
    const before = this.#clock.micros;
    const reported = micros(await this.#clock.until(this.#subject.acquire(permits)));
    const waited = this.#clock.micros - before;
    const agrees = this.#near(reported, Math.round(Number(original) * 1e6));
    this.#grants += 1;
    if (reported !== waited) return `returned ${reported} but waited ${waited}`;
    return agrees ? original : (reported / 1e6).toFixed(6);
  }

  async #reserve(permits: number, original: string): Promise<string> {
    const { waitMs } = await this.#subject.reserve(permits);
    const agrees = this.#near(micros(waitMs), Number(original));
    this.#grants += 1;
    return agrees ? original : `${micros(waitMs)}`;
  }

  async #tryAcquire(permits: number, timeout: number, original: string): Promise<string> {
    const before = this.#clock.micros;
    const yes = await this.#clock.until(this.#subject.tryAcquire(permits, timeout / 1000));
    const waited = this.#clock.micros - before;
    const [originalYes, originalWaited] = original.split(" ");
    if (String(yes) !== originalYes) {
      const instant = yes ? waited : micros((await this.#subject.peek(permits)).waitMs);
      return this.#near(instant, Math.max(0, timeout)) ? CLOSE_CALL : `${yes} ${waited}`;
    }
    const agrees = this.#near(waited, Number(originalWaited));
    if (yes) this.#grants += 1;
    return agrees ? original : `${yes} ${waited}`;
  }

  async #getRate(recorded: number, original: string): Promise<string> {
    const rate = await this.#subject.getRate();
    const cut = rate === recorded || Math.abs(rate / recorded - 1) <= RATE_CUT;
    return rate === this.#rate && cut ? original : `${rate}`;
  }

  #near(a: number, b: number): boolean {
    return Math.abs(a - b) <= CUT_PER_GRANT * this.#grants;
  }
}

/** Milliseconds rounded to whole microseconds. */
function micros(ms: number): number {
  return Math.round(ms * 1000);
}

/** A fake clock that can step back, and that advances by itself to its next timer. */
class ReplayClock implements Clock {
  readonly #fake: FakeClock;
  readonly #alarms = new Set<number>();
  /** Microseconds that it was set back in total. */
  #back = 0;
  #onAlarm: () => void = () => {};

  constructor(startMicros: number) {
    this.#fake = new FakeClock(startMicros / 1000);
  }

  get micros(): number {
    return micros(this.#fake.now()) - this.#back;
  }

  now(): number {
    return this.micros / 1000;
  }

  wakeAt(timeMs: number, wake: () => void): Timer {
    const at = timeMs + this.#back / 1000;
    const timer = this.#fake.wakeAt(at, () => {
      this.#alarms.delete(at);
      wake();
    });
    this.#alarms.add(at);
    this.#onAlarm();
    return {
      cancel: () => {
        this.#alarms.delete(at);
        timer.cancel();
      },
    };
  }

  async advance(by: number): Promise<void> {
    if (by >= 0) await this.#fake.advance(by / 1000);
    else this.#back -= by;
  }

  /** Waits for an answer, and advances by the time that it takes. */
  async until<T>(answer: Promise<T>): Promise<T> {
    let pending = true;
    const settled = answer.then(
      () => {
        pending = false;
      },
      () => {
        pending = false;
      },
    );
    while (pending) {
      const alarm = new Promise<void>((resolve) => {
        this.#onAlarm = resolve;
        if (this.#alarms.size > 0) resolve();
      });
      await Promise.race([settled, alarm]);
      const [next] = [...this.#alarms].sort((a, b) => a - b);
      if (!pending || next === undefined) continue;
      await this.#fake.advance(next - this.#fake.now());
      if (this.#fake.now() < next) throw new Error(`${next} ms exceeds the range of the clock`);
    }
    return answer;
  }
}
