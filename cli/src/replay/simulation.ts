import {
  createGateway,
  fromAddress,
  type Gateway,
  type RequestRule,
  type Verdict,
} from "smooth-limiter-gateway";
import type { LogEntry } from "./log-entry.ts";
import { Tally } from "./tally.ts";
import { VirtualClock } from "./virtual-clock.ts";

/**
 * A gateway in the time of a log: `createGateway`, as in an application, on a clock that the log
 * drives. Rules of scope global are counted in this process, because a log contains the requests of
 * all instances.
 */
export class Simulation {
  readonly tally: Tally;
  readonly #gateway: Gateway;
  readonly #clock: VirtualClock;
  #fault: unknown;

  /**
   * @param actors names of actors that the log contains; "device" is the address unless it is among
   *   them
   * @param startMs Unix time of the first request
   */
  static async open(
    rules: readonly RequestRule[],
    actors: readonly string[],
    startMs: number,
  ): Promise<Simulation> {
    const clock = new VirtualClock(startMs);
    const gateway = await createGateway({
      rules: rules.map((rule): RequestRule => ({ ...rule, scope: "local" })),
      clock,
      // a log does not contain what the application's functions would compute
      costs: Object.fromEntries(
        rules.flatMap(({ costBy }) => (costBy === undefined ? [] : [[costBy, () => 1]])),
      ),
      actors: {
        device: fromAddress({ names: true }),
        ...Object.fromEntries(
          actors.map((name) => [name, (request) => (request as LogEntry).actors[name]]),
        ),
      },
    });
    return new Simulation(gateway, clock, new Tally(rules));
  }

  private constructor(gateway: Gateway, clock: VirtualClock, tally: Tally) {
    this.#gateway = gateway;
    this.#clock = clock;
    this.tally = tally;
  }

  /**
   * @param atMs Unix time; a time in the past counts as now
   * @returns a promise if waiting requests have passed meanwhile, which are counted first
   */
  play(atMs: number, entry: LogEntry): void | Promise<void> {
    if (this.#clock.moveTo(atMs - this.#clock.epochMs)) {
      return turn().then(() => this.#ask(entry));
    }
    this.#ask(entry);
  }

  #ask(entry: LogEntry): void {
    const { tally } = this;
    const cameMs = this.#clock.epochMs + this.#clock.now();
    const answer = this.#gateway.check(entry);
    if (answer instanceof Promise) void this.#addLater(answer, cameMs, entry);
    else tally.add(answer, cameMs, entry.actors);
  }

  async #addLater(answer: Promise<Verdict>, cameMs: number, entry: LogEntry): Promise<void> {
    try {
      this.tally.add(await answer, cameMs, entry.actors);
    } catch (error) {
      this.#fault ??= error;
    }
  }

  /** Lets all waiting requests pass. */
  async end(): Promise<Tally> {
    while (this.#clock.moveTo(Infinity)) await turn();
    await turn();
    await this.#gateway.close();
    if (this.#fault !== undefined) throw this.#fault;
    return this.tally;
  }
}

/** Lets every callback run that was just woken. */
function turn(): Promise<void> {
  return new Promise(setImmediate);
}
