/**
 * Compares HTTP servers in one process, on sockets in memory. Without a network and a client the
 * difference between two servers is precise to some hundredths of a microsecond. It is a lower bound:
 * the processor's caches are warmer than in a real server.
 */
import type { Server } from "node:http";
import { Duplex } from "node:stream";
import { short } from "../../../bench/lib/options.ts";
import { quantile, shuffled } from "../../../bench/lib/stats.ts";

const ROUNDS = short ? 150 : 1000;
const WARM_UP_ROUNDS = 30;
const REQUESTS = 200;

const REQUEST = Buffer.from("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");

/** A socket in memory with what an HTTP server needs. */
class MemorySocket extends Duplex {
  readonly remoteAddress = "127.0.0.1";
  #answered = () => {};

  ask(): Promise<void> {
    return new Promise((answered) => {
      this.#answered = answered;
      this.push(REQUEST);
    });
  }

  override _read(): void {}

  override _write(_chunk: unknown, _encoding: string, done: () => void): void {
    done();
    this.#answered();
  }

  setTimeout(): this {
    return this;
  }
}

/** Microseconds of processor time for a request, of each server in each round. */
export class Rounds {
  readonly #rounds: ReadonlyMap<string, readonly number[]>;

  constructor(rounds: ReadonlyMap<string, readonly number[]>) {
    this.#rounds = rounds;
  }

  /**
   * Returns what each server adds to a request, compared with the first one. The best tenth of the
   * rounds counts, which a busy machine hardly changes.
   */
  added(): ReadonlyMap<string, number> {
    const best = Array.from(
      this.#rounds,
      ([name, rounds]) => [name, quantile(rounds, 0.1)] as const,
    );
    const [[, bare] = ["", 0]] = best;
    return new Map(best.map(([name, micros]) => [name, micros - bare]));
  }
}

/** Sends requests to the servers in many short rounds, in a new random order in each. */
export async function compareInMemory(
  servers: ReadonlyMap<string, Server>,
  most = ROUNDS,
): Promise<Rounds> {
  const contenders = Array.from(servers, ([name, server]) => {
    const socket = new MemorySocket();
    server.emit("connection", socket);
    return { name, socket, rounds: [] as number[] };
  });
  for (let round = -WARM_UP_ROUNDS; round < most; round++) {
    for (const { socket, rounds } of shuffled(contenders)) {
      const before = process.cpuUsage();
      for (let i = 0; i < REQUESTS; i++) await socket.ask();
      const { user, system } = process.cpuUsage(before);
      if (round >= 0) rounds.push((user + system) / REQUESTS);
    }
  }
  for (const { socket } of contenders) socket.destroy();
  return new Rounds(new Map(contenders.map(({ name, rounds }) => [name, rounds])));
}
