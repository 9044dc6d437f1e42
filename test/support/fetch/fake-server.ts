import { FakeClock } from "../../../src/testing/index.ts";

/** How the server answers a request that arrives at `nowMs`. */
export type Answer = (request: Request, nowMs: number) => Response | Promise<Response>;

export interface FakeServer {
  readonly clock: FakeClock;
  readonly fetch: typeof globalThis.fetch;
  /** When each request came, ms, and how it was answered. */
  readonly seen: { at: number; status: number; method: string; url: string; body: string }[];
}

/** A server on a fake clock, with a latency in ms for each direction. */
export function fakeServer(
  answer: Answer,
  wayMs: number | (() => number) = 5,
  clock = new FakeClock(),
): FakeServer {
  const seen: FakeServer["seen"] = [];
  const way = () =>
    new Promise<void>((resolve) => {
      clock.wakeAt(clock.now() + (typeof wayMs === "number" ? wayMs : wayMs()), resolve);
    });
  return {
    clock,
    seen,
    fetch: async (input, init) => {
      const request = new Request(input, init);
      await way();
      request.signal.throwIfAborted();
      const entry = { at: clock.now(), status: 0, method: request.method, url: request.url };
      const body = await request.clone().text();
      const response = await answer(request, clock.now());
      seen.push({ ...entry, status: response.status, body });
      await way();
      request.signal.throwIfAborted();
      return response;
    },
  };
}

/** How many of them were refused. */
export function refusals(seen: FakeServer["seen"]): number {
  return seen.filter(({ status }) => status === 429).length;
}

/** Answers in turn; the last answer repeats for ever. */
export function inTurn(...answers: (() => Response)[]): Answer {
  let next = 0;
  return () => answers[Math.min(next++, answers.length - 1)]?.() ?? new Response();
}

export const ok = () => new Response("fine");
export const status =
  (code: number, headers: Record<string, string> = {}) =>
  () =>
    new Response(null, { status: code, headers });
