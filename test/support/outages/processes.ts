// Runs four processes that share limits, and records what happens to them during a fault.

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { until } from "../redis/ask.ts";
import { startProxy } from "../redis/proxy.ts";
import { startRedis } from "../redis/server.ts";
import type { Fault, Stage } from "./faults.ts";
import {
  type Holdings,
  type Message,
  monotonicMs,
  type News,
  type Report,
  WORKERS,
} from "./limits.ts";
import { Outcome } from "./outcome.ts";

const BEFORE_MS = 800;
const AFTER_MS = 1200;
/** The time within which all processes must be back on Redis, ms. */
const RETURN_MS = 15_000;

class Member {
  isUnavailable = false;
  readonly process: ChildProcess;
  #expected: { resolve(news: News): void; reject(error: Error): void } | undefined;
  /** When the process last reported that it was back on Redis, ms. */
  backAt = 0;

  constructor() {
    this.process = fork(fileURLToPath(new URL("worker.ts", import.meta.url)), [], {
      env: { ...process.env, NODE_V8_COVERAGE: "" },
      execArgv: ["--import", "tsx", "--expose-gc"],
      serialization: "advanced",
    });
    this.process.on("message", (news: News) => this.#receive(news));
    this.process.on("exit", (code, signal) =>
      this.#expected?.reject(new Error(`a worker ended: ${signal ?? code}`)),
    );
  }

  /** The next news that is no change of state. */
  expect(): Promise<News> {
    return new Promise((resolve, reject) => {
      this.#expected = { resolve, reject };
    });
  }

  tell(message: Message): Promise<News> {
    const news = this.expect();
    this.process.send(message);
    return news;
  }

  async stop(): Promise<void> {
    this.#expected = undefined;
    const exited = once(this.process, "exit");
    this.process.disconnect();
    const timer = setTimeout(() => this.process.kill("SIGKILL"), 3000);
    await exited;
    clearTimeout(timer);
  }

  #receive(news: News): void {
    if (typeof news === "object" && "isUnavailable" in news) {
      this.isUnavailable = news.isUnavailable;
      if (!news.isUnavailable) this.backAt = monotonicMs();
    } else if (typeof news === "object" && "failure" in news) {
      this.#expected?.reject(new Error(news.failure));
    } else {
      this.#expected?.resolve(news);
    }
  }
}

export class Processes {
  readonly #members: readonly Member[];

  static async start(): Promise<Processes> {
    const members = Array.from({ length: WORKERS }, () => new Member());
    await Promise.all(members.map((member) => member.expect()));
    return new Processes(members);
  }

  private constructor(members: readonly Member[]) {
    this.#members = members;
  }

  async run(fault: Fault): Promise<Outcome> {
    const { redisArgs = [], socketTimeout = 60_000, retryMs = 100 } = fault;
    const marks: (readonly Holdings[])[] = [];
    await using server = await startRedis({ args: redisArgs });
    await using first = await startProxy(server.port);
    await using second = await startProxy(server.port);
    const stage: Stage = {
      server,
      proxies: [first, second],
      pids: this.#members.map(({ process }) => Number(process.pid)),
      mark: async () => {
        marks.push(await this.#holdings());
      },
    };
    await using prepared = await fault.prepare(stage);
    await Promise.all(
      this.#members.map((member, i) => {
        const { url } = i < WORKERS / 2 ? first : second;
        return member.tell({ order: { url, name: fault.title, socketTimeout, retryMs } });
      }),
    );
    await sleep(BEFORE_MS);
    await prepared.run();
    const healedAt = monotonicMs();
    await until("all are back", () => this.#members.every(({ isUnavailable }) => !isUnavailable), {
      limitMs: RETURN_MS,
      everyMs: 5,
    });
    const backMs = Math.max(0, ...this.#members.map(({ backAt }) => backAt - healedAt));
    await sleep(AFTER_MS);
    const reports = await Promise.all(
      this.#members.map(async (member) => {
        const news = await member.tell("end");
        return (news as { report: Report }).report;
      }),
    );
    return new Outcome(fault, reports, { healedAt, backMs, marks });
  }

  #holdings(): Promise<readonly Holdings[]> {
    return Promise.all(
      this.#members.map(async (member) => {
        const news = await member.tell("hold");
        return (news as { holdings: Holdings }).holdings;
      }),
    );
  }

  async stop(): Promise<void> {
    await Promise.all(this.#members.map((member) => member.stop()));
  }
}
