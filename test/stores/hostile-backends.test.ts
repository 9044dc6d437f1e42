/** Databases and clients that break the rules of a store: no call stays open, and no error ends the process. */
import * as assert from "uvu/assert";
import { type PostgresClient, postgresStore } from "../../src/postgres.ts";
import { type CasBackend, casStore, type Store, StoreRateLimiter } from "../../src/store.ts";
import { suite } from "../support/suite.ts";

const test = suite("hostile backends");

const unhandled: unknown[] = [];
const note = (reason: unknown) => unhandled.push(reason);

test.before(() => {
  process.on("unhandledRejection", note);
  process.on("uncaughtException", note);
});

test.after(() => {
  process.off("unhandledRejection", note);
  process.off("uncaughtException", note);
});

const raise = (): never => {
  throw new Error("a trap");
};

function throwing(reason: unknown): never {
  const generator = (function* () {})();
  generator.throw(reason);
  throw new Error("it has thrown already");
}

const unreadable = Object.create(null) as object;
const trap = new Proxy({}, { get: raise, has: raise, getPrototypeOf: raise, ownKeys: raise });
const strange = (name: string, property: PropertyDescriptor) =>
  Object.defineProperty(new Error("x"), name, property);
const coded = (code: string) => Object.assign(new Error("x"), { code });
const THEN = "then";
const thenable = (then: PropertyDescriptor) => Object.defineProperty({}, THEN, then);
const bytes = (length: number, value: number) => new Uint8Array(length).fill(value);
const row = { state: null, now: 1e12 };

const ANSWERS: Record<string, () => unknown> = {
  throws: raise,
  "throws what cannot be read": () => throwing(unreadable),
  "throws a trap": () => throwing(trap),
  "throws a symbol": () => throwing(Symbol("no")),
  "rejects with nothing": () => Promise.reject(),
  "rejects with what cannot be read": () => Promise.reject(unreadable),
  "rejects with a trap": () => Promise.reject(trap),
  "rejects with a symbol": () => Promise.reject(Symbol("no")),
  "rejects with an error that throws": () => Promise.reject(strange("message", { get: raise })),
  "rejects with a symbol as message": () =>
    Promise.reject(strange("message", { value: Symbol("no") })),
  "rejects with a code that throws": () => Promise.reject(strange("code", { get: raise })),
  "always lacks its table": () => Promise.reject(coded("42P01")),
  "always loses the race": () => Promise.reject(coded("40001")),
  "answers with no promise": () => 5,
  "answers with a trap and no promise": () => trap,
  "answers with nothing": async () => undefined,
  "answers with a trap": async () => trap,
  "answers with a number": async () => 5,
  "answers with a number that is none": async () => NaN,
  "answers with too large a number": async () => 1e300,
  "answers with a text": async () => "abc",
  "answers with true": async () => true,
  "answers with false": async () => false,
  "answers with no bytes": async () => bytes(0, 0),
  "answers with strange bytes": async () => bytes(100, 255),
  "answers with 10 MB": async () => bytes(1e7, 1),
  "answers with no rows": async () => ({ rows: [] }),
  "answers with rows that are none": async () => ({ rows: [null, 5] }),
  "answers with rows that throw": async () => ({ rows: [trap] }),
  "answers with rows that cannot be read": async () => thenable({ get: raise }),
  "answers with strange columns": async () => ({ rows: [{ state: 5, now: "x", i: {} }] }),
  "answers with strange states": async () => ({ rows: [{ ...row, state: bytes(50, 7) }] }),
  "answers with an endless time": async () => ({ rows: [{ ...row, now: Infinity }] }),
  "answers with strange counts": async () => ({ rows: [row], rowCount: NaN }),
  "answers with too many rows": async () => ({ rows: Array(1e5).fill({ ...row, i: 0 }) }),
  "never answers": () => new Promise(() => {}),
  "answers by a thenable that throws": () => thenable({ value: raise }),
  "answers by a thenable that cannot be read": () => thenable({ get: raise }),
  "answers by a thenable that answers twice": () =>
    thenable({
      value(resolve: (answer: unknown) => void, reject: (error: unknown) => void) {
        resolve(true);
        reject(trap);
        raise();
      },
    }),
  "answers by a thenable that never answers": () => thenable({ value() {} }),
};

const backend = (own: Record<string, unknown>) =>
  casStore({ get: async () => undefined, compareAndSet: async () => true, ...own } as CasBackend);

const STORES: Readonly<Record<string, (answer: () => unknown) => Store>> = {
  "a backend": (answer) => backend({ get: answer, compareAndSet: answer }),
  "a backend that reads": (compareAndSet) => backend({ compareAndSet }),
  "a backend with a clock": (now) => backend({ now }),
  "a store": (run) => ({ run }) as unknown as Store,
  PostgreSQL: (query) => postgresStore({ query } as PostgresClient),
};

for (const [kind, storeOf] of Object.entries(STORES)) {
  test(`${kind} that answers anything: every call ends, and no other error is caused`, async () => {
    await Promise.all(
      Object.entries(ANSWERS).flatMap(([what, answer]) =>
        (["throw", "wait", "allow", "local"] as const).map(async (whenUnavailable) => {
          const how = whenUnavailable === "local" ? { instances: 2 } : {};
          const options = { timeoutMs: 50, whenUnavailable, ...how };
          const limiter = StoreRateLimiter.create(storeOf(answer), "a", 5, options as never);
          const signal = AbortSignal.timeout(500);
          const calls: (() => unknown)[] = [
            () => limiter.acquire(1, { signal }),
            () => limiter.tryAcquire(1, { timeoutMs: 5 }),
          ];
          // without a signal these wait until the store is back
          if (whenUnavailable !== "wait") {
            calls.push(
              () => limiter.decide(),
              () => limiter.peek(),
              () => limiter.charge(1),
            );
          }
          let timer: NodeJS.Timeout | undefined;
          const late = new Promise((resolve) => {
            timer = setTimeout(resolve, 30_000, "open");
          });
          const ends = Promise.allSettled(calls.map(async (call) => call()));
          assert.is.not(await Promise.race([ends, late]), "open", `${what}, ${whenUnavailable}`);
          clearTimeout(timer);
          await limiter.close();
        }),
      ),
    );
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(unhandled, []);
  });
}

test.run();
