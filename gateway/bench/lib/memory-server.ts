/**
 * HTTP servers beside each other in one process, on sockets in the memory. There is no network and no
 * client, so what one adds to another is seen to some hundredths of a microsecond; the caches of the
 * processor are warmer than in a server, so it is the least that it costs.
 */
import type { Server } from "node:http";
import { Duplex } from "node:stream";
import { short } from "../../../bench/lib/options.ts";
import { quantile } from "../../../bench/lib/stats.ts";
import { shuffled } from "./servers.ts";

const ROUNDS = short ? 150 : 1000;
const WARM_UP_ROUNDS = 30;
const REQUESTS = 200;

const REQUEST = Buffer.from("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");

/** What a server needs of a socket. */
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

/**
 * Microseconds of processor time that each adds to a request, set against the first. The best tenth
 * of many short rounds counts: it hardly knows whether the machine is busy.
 */
export async function addedMicros(
  servers: ReadonlyMap<string, Server>,
): Promise<ReadonlyMap<string, number>> {
  const contenders = Array.from(servers, ([name, server]) => {
    const socket = new MemorySocket();
    server.emit("connection", socket);
    return { name, socket, rounds: [] as number[] };
  });
  for (let round = -WARM_UP_ROUNDS; round < ROUNDS; round++) {
    for (const { socket, rounds } of shuffled(contenders)) {
      const before = process.cpuUsage();
      for (let i = 0; i < REQUESTS; i++) await socket.ask();
      const { user, system } = process.cpuUsage(before);
      if (round >= 0) rounds.push((user + system) / REQUESTS);
    }
  }
  for (const { socket } of contenders) socket.destroy();
  const best = contenders.map(({ name, rounds }) => [name, quantile(rounds, 0.1)] as const);
  const [[, bare] = ["", 0]] = best;
  return new Map(best.map(([name, micros]) => [name, micros - bare]));
}
