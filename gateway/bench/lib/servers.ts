/**
 * Compares HTTP servers, each in its own process. autocannon sends requests to them in short turns, in a
 * new random order in each round. The measure is the server's own processor time for a request, because it
 * does not include the client's; ratios are taken within a round. The memory layout and machine code of a
 * process vary by chance and then stay, so all servers are restarted a few times.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import autocannon from "autocannon";
import { short } from "../../../bench/lib/options.ts";
import {
  type Interval,
  median,
  medianWithin,
  quantile,
  shuffled,
} from "../../../bench/lib/stats.ts";

const STARTS = short ? 1 : 3;
const ROUNDS = short ? 8 : 20;
const SECONDS = 0.1;
/** Warm-up turns, so that all code is compiled. They count requests, because a busy machine serves few in a second. */
const WARM_UPS = 4;
const WARM_UP_REQUESTS = short ? 3000 : 8000;
const CONNECTIONS = 50;

/** Creates a server that does not listen yet. */
export type MakeServer = () => Server | Promise<Server>;

/** In the process of a server: sends the port to the parent and, on each message, the processor time used so far. */
export async function serveIfApart(
  servers: Readonly<Record<string, MakeServer>>,
): Promise<boolean> {
  const make = process.send && servers[process.argv[2] ?? ""];
  if (!make) return false;
  process.on("disconnect", () => process.exit());
  const server = (await make()).listen(0, "127.0.0.1");
  await once(server, "listening");
  process.send?.((server.address() as AddressInfo).port);
  process.on("message", () => {
    const { user, system } = process.cpuUsage();
    process.send?.(user + system);
  });
  return true;
}

interface Turns {
  readonly perSecond: number[];
  /** Microseconds of the server's processor time for a request. */
  readonly micros: number[];
}

/** The results of a comparison. */
export class Comparison {
  readonly #turns = new Map<string, Turns>();

  constructor(names: readonly string[]) {
    for (const name of names) this.#turns.set(name, { perSecond: [], micros: [] });
  }

  add(name: string, perSecond: number, micros: number): void {
    this.#of(name).perSecond.push(perSecond);
    this.#of(name).micros.push(micros);
  }

  perSecond(name: string): number {
    return median(this.#of(name).perSecond);
  }

  /** Returns the value of the best turns: disturbances only ever make a server slower. */
  micros(name: string): number {
    return quantile(this.#of(name).micros, 0.1);
  }

  /** Returns how many requests the one answers in the time in which the other answers one. */
  speed(name: string, other: string): Interval {
    const others = this.#of(other).micros;
    const ratios = this.#of(name).micros.map((micros, i) => (others[i] ?? Number.NaN) / micros);
    return medianWithin(ratios);
  }

  #of(name: string): Turns {
    const turns = this.#turns.get(name);
    if (turns === undefined) throw new Error(`there is no server ${name}`);
    return turns;
  }
}

/** @param env environment variables for the servers' processes, added to this process' */
export async function compareServers(
  names: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<Comparison> {
  const comparison = new Comparison(names);
  for (let start = 0; start < STARTS; start++) {
    const servers = await Promise.all(names.map((name) => startServer(name, env)));
    for (let turns = 0; turns < WARM_UPS; turns++) {
      for (const server of shuffled(servers)) await turn(server, { amount: WARM_UP_REQUESTS });
    }
    for (let round = 0; round < ROUNDS; round++) {
      for (const server of shuffled(servers)) {
        const { perSecond, micros } = await turn(server, { duration: SECONDS });
        comparison.add(server.name, perSecond, micros);
      }
    }
    for (const { process } of servers) process.kill();
  }
  return comparison;
}

interface Running {
  readonly name: string;
  readonly process: ChildProcess;
  readonly url: string;
}

async function startServer(name: string, more: Readonly<Record<string, string>>): Promise<Running> {
  const file = process.argv[1] ?? fileURLToPath(import.meta.url);
  const server = fork(file, [name], { env: { ...process.env, ...more } });
  const [port] = await once(server, "message");
  return { name, process: server, url: `http://127.0.0.1:${port}/` };
}

async function turn({ name, process, url }: Running, until: Partial<autocannon.Options>) {
  const before = await timeOf(process);
  const { requests, duration, non2xx, errors } = await autocannon({
    url,
    connections: CONNECTIONS,
    sampleInt: 25,
    ...until,
  });
  if (non2xx + errors > 0) throw new Error(`${name}: ${non2xx} refused, ${errors} failed`);
  const micros = ((await timeOf(process)) - before) / requests.total;
  return { perSecond: requests.total / duration, micros };
}

async function timeOf(server: ChildProcess): Promise<number> {
  server.send("time");
  const [micros] = await once(server, "message");
  return micros;
}
