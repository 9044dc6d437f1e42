/**
 * The filter: what all rules together say about a request.
 *
 * Rules in this process are asked first, at one instant: all let the request pass and are charged,
 * or none is. Only then are those on Redis asked, all in one round trip, and what was charged is
 * given back if one of them refuses: for the length of a round trip others see it taken.
 *
 * Who must wait holds its place in each line and goes when all lines have let it.
 */
import { show } from "../../check.ts";
import { PermitsExceedCapacityError, QueueFullError, TooManyKeysError } from "../../errors.ts";
import type { Decision, Limiter, Reservation } from "../../limiter/face.ts";
import { retryAfter } from "./answers/retry.ts";
import type { GatewayRequest } from "./request.ts";
import type { ActiveRule, RuleSet } from "./ruleset.ts";
import type { Outcome, Verdict } from "./verdict.ts";

type Maybe<T> = T | Promise<T>;

/** Whose request it is where the actor does not say. */
export type WhenActorMissing = "device" | "shared" | "skip";

/** What one rule is asked, and what it was given. */
interface Ask {
  readonly active: ActiveRule;
  readonly actor: string;
  readonly limiter: Limiter;
  readonly cost: number;
}

/** What one rule answered; `undo` gives back what it took, if it took something. */
interface Answer {
  readonly ask: Ask;
  readonly allowed: boolean;
  readonly decision: Decision;
  readonly reservation?: Reservation;
  readonly isTaken: boolean;
}

const NO_RULE: Verdict = Object.freeze({
  allowed: true,
  retryMs: 0,
  waitedMs: 0,
  outcomes: Object.freeze([]),
});

export class Filter {
  readonly #device: (request: GatewayRequest) => Maybe<string | undefined>;
  readonly #whenActorMissing: WhenActorMissing;
  readonly #waiting = new Set<Reservation>();
  #isDismissed = false;

  constructor(
    device: (request: GatewayRequest) => Maybe<string | undefined>,
    whenActorMissing: WhenActorMissing,
  ) {
    this.#device = device;
    this.#whenActorMissing = whenActorMissing;
  }

  check(rules: RuleSet, request: GatewayRequest): Maybe<Verdict> {
    const active = rules.match(request.method, request.url);
    const [first] = active;
    if (first === undefined) return NO_RULE;
    if (active.length === 1)
      return chain(this.#askOf(first, request), (ask) => this.#judgeOne(ask, request));
    const asks = all(active.map((one) => this.#askOf(one, request)));
    return chain(asks, (known) => this.#judge(known.filter(isDefined), request));
  }

  /** Nobody waits any more: whoever does, or would, is told that its place is gone. */
  dismiss(): void {
    this.#isDismissed = true;
    for (const reservation of this.#waiting) void settled(() => reservation.cancel());
  }

  #askOf(active: ActiveRule, request: GatewayRequest): Maybe<Ask | undefined> {
    const told = active.actor(request);
    return told instanceof Promise
      ? told.then((value) => this.#askAbout(active, value, request))
      : this.#askAbout(active, told, request);
  }

  #askAbout(
    active: ActiveRule,
    value: string | undefined,
    request: GatewayRequest,
  ): Maybe<Ask | undefined> {
    // all objects would be one actor
    if (value && typeof value !== "string") {
      throw new TypeError(`actors.${active.rule.actor} must answer a text, got ${show(value)}`);
    }
    if (value) return active.isExempt(value) ? undefined : askFor(active, value, true);
    if (active.rule.actor === "all") return askFor(active, "", true);
    if (this.#whenActorMissing === "skip") return undefined;
    const device = this.#whenActorMissing === "device" ? this.#device(request) : undefined;
    return chain(device, (instead = "") => askFor(active, instead, false));
  }

  /** As `#judge` does it for several: most requests meet one rule, in this process. */
  #judgeOne(ask: Ask | undefined, request: GatewayRequest): Maybe<Verdict> {
    if (ask === undefined) return NO_RULE;
    const { rule, isGlobal, isShadow, waits } = ask.active;
    if (isGlobal || waits) return this.#judge([ask], request);
    const { allowed, decision } = takeNear(ask);
    const isRefused = !allowed && !isShadow;
    return {
      allowed: !isRefused,
      retryMs: isRefused ? retryAfter(decision, ask.cost) : 0,
      waitedMs: 0,
      outcomes: [{ rule, actor: ask.actor, allowed, decision }],
    };
  }

  #judge(asks: readonly Ask[], request: GatewayRequest): Maybe<Verdict> {
    if (asks.length === 0) return NO_RULE;
    const near = takeAllOrNone(asks.filter(({ active }) => !active.isGlobal));
    const far = asks.filter(({ active }) => active.isGlobal);
    if (far.length === 0 || !near.every(passes)) return this.#conclude(asks, near, request);
    return takeFar(far).then(
      (answers) => this.#conclude(asks, [...near, ...answers], request),
      (error: unknown) => chain(giveBack(near), () => Promise.reject(error)),
    );
  }

  #conclude(
    asks: readonly Ask[],
    answers: readonly Answer[],
    request: GatewayRequest,
  ): Maybe<Verdict> {
    if (!answers.every(passes)) return chain(giveBack(answers), () => verdict(asks, answers, 0));
    const lines = answers.flatMap(({ reservation }) =>
      reservation !== undefined && reservation.waitMs > 0 ? [reservation] : [],
    );
    if (lines.length === 0) return verdict(asks, answers, 0);
    // only here, for servers make the signal when it is asked for
    return this.#wait(lines, request.signal).then(
      (waitedMs) => verdict(asks, answers, waitedMs),
      async (error: unknown) => {
        await giveBack(answers);
        throw error;
      },
    );
  }

  async #wait(lines: readonly Reservation[], signal: AbortSignal | undefined): Promise<number> {
    for (const line of lines) this.#waiting.add(line);
    try {
      const waits = lines.map((line) => line.ready({ signal }));
      if (this.#isDismissed) this.dismiss();
      return Math.max(...(await Promise.all(waits)));
    } finally {
      for (const line of lines) this.#waiting.delete(line);
    }
  }
}

function askFor(active: ActiveRule, actor: string, isKnown: boolean): Ask {
  return { active, actor, limiter: active.limiter(actor, isKnown), cost: active.rule.cost };
}

/** A shadow refuses nobody. */
function passes({ ask, allowed }: Answer): boolean {
  return allowed || ask.active.isShadow;
}

function verdict(asks: readonly Ask[], answers: readonly Answer[], waitedMs: number): Verdict {
  const outcomes: Outcome[] = [];
  let allowed = true;
  let retryMs = 0;
  for (const ask of asks) {
    for (const answer of answers) {
      if (answer.ask !== ask) continue;
      const { decision } = answer;
      outcomes.push({ rule: ask.active.rule, actor: ask.actor, allowed: answer.allowed, decision });
      if (passes(answer)) continue;
      allowed = false;
      retryMs = Math.max(retryMs, retryAfter(decision, ask.cost));
    }
  }
  return { allowed, retryMs, waitedMs, outcomes };
}

// -- in this process: at one instant --

/** Nothing can come between the look and the deed, so a refusal has never taken anything. */
function takeAllOrNone(asks: readonly Ask[]): readonly Answer[] {
  const [only] = asks;
  if (asks.length === 1 && only !== undefined) return [takeNear(only)];
  const looks = asks.map(lookNear);
  if (!looks.every(passes)) return looks.map(withRoom);
  const answers: Answer[] = [];
  for (const ask of asks) {
    const answer = takeNear(ask);
    // what a look does not tell is whether there is room in a line, and for a key
    if (!passes(answer)) {
      void giveBack(answers);
      return looks.map((look) => (look.ask === ask ? answer : look));
    }
    answers.push(answer);
  }
  return answers;
}

/** Whether there is room in a line only a try can tell. */
function withRoom(look: Answer): Answer {
  if (!look.ask.active.waits) return look;
  const answer = takeNear(look.ask);
  if (!answer.allowed) return answer;
  void giveBack([answer]);
  return look;
}

function lookNear(ask: Ask): Answer {
  const decision = ask.limiter.peek(ask.cost) as Decision;
  return { ask, allowed: ask.active.waits || decision.allowed, decision, isTaken: false };
}

function takeNear(ask: Ask): Answer {
  const { limiter, cost, active } = ask;
  try {
    if (!active.waits) {
      const decision = limiter.decide(cost) as Decision;
      return { ask, allowed: decision.allowed, decision, isTaken: decision.allowed };
    }
    const reservation = limiter.reserve(cost) as Reservation;
    return inLine(ask, reservation, limiter.peek(cost) as Decision);
  } catch (error) {
    return refusal(ask, error, limiter.peek(cost) as Decision);
  }
}

function inLine(ask: Ask, reservation: Reservation, after: Decision): Answer {
  const decision = { ...after, allowed: true, waitMs: reservation.waitMs };
  return { ask, allowed: true, decision, reservation, isTaken: true };
}

/** A full line, a full table of keys and a limit of 0 say no; everything else is a fault. */
function refusal(ask: Ask, error: unknown, look: Decision): Answer {
  const isClosed = error instanceof PermitsExceedCapacityError && error.facts.capacity === 0;
  const isFull = error instanceof QueueFullError || error instanceof TooManyKeysError;
  if (!isClosed && !isFull) throw error;
  const decision = { ...look, allowed: false, waitMs: look.waitMs || NO_ROOM_MS };
  return { ask, allowed: false, decision, isTaken: false };
}

/** Nobody knows when there will be room for a key: a second is as good as any. */
const NO_ROOM_MS = 1000;

// -- on Redis: in one round trip --

async function takeFar(asks: readonly Ask[]): Promise<readonly Answer[]> {
  const [only] = asks;
  if (asks.length === 1 && only !== undefined) return takeOneFar(only);
  // what is asked in one turn of the event loop travels together
  const told = await Promise.allSettled(asks.map(takeOneFar));
  const answers = told.flatMap((one) => (one.status === "fulfilled" ? one.value : []));
  const failed = told.find((one) => one.status === "rejected");
  if (failed === undefined) return answers;
  await giveBack(answers);
  throw failed.reason;
}

async function takeOneFar(ask: Ask): Promise<readonly Answer[]> {
  const { limiter, cost, active } = ask;
  try {
    if (!active.waits) {
      const decision = await limiter.decide(cost);
      return [{ ask, allowed: decision.allowed, decision, isTaken: decision.allowed }];
    }
    const [reserved, look] = await Promise.allSettled([limiter.reserve(cost), limiter.peek(cost)]);
    if (look.status === "rejected") {
      if (reserved.status === "fulfilled") await withdraw(reserved.value);
      throw look.reason;
    }
    if (reserved.status === "rejected") return [refusal(ask, reserved.reason, look.value)];
    return [inLine(ask, reserved.value, look.value)];
  } catch (error) {
    // a shadow that cannot be asked is no reason to stop anybody
    if (active.isShadow) return [];
    throw error;
  }
}

// -- giving back --

/** What was taken for a request that does not pass. A fault here costs permits and nothing else. */
function giveBack(answers: readonly Answer[]): Maybe<unknown> {
  const given = answers.map(({ ask, reservation, isTaken }) => {
    if (reservation !== undefined) return settled(() => withdraw(reservation));
    return isTaken ? settled(() => ask.limiter.refund(ask.cost)) : undefined;
  });
  return all<unknown>(given);
}

function withdraw(reservation: Reservation): Maybe<unknown> {
  return chain(reservation.cancel(), (cancelled) =>
    cancelled ? undefined : reservation.settle(0),
  );
}

// -- answers that may come now or later --

function chain<T, R>(answer: Maybe<T>, go: (answer: T) => Maybe<R>): Maybe<R> {
  return answer instanceof Promise ? answer.then(go) : go(answer);
}

function all<T>(answers: readonly Maybe<T>[]): Maybe<readonly T[]> {
  return answers.some((answer) => answer instanceof Promise)
    ? Promise.all(answers)
    : (answers as readonly T[]);
}

/** Whatever comes of it. */
function settled(deed: () => Maybe<unknown>): Maybe<unknown> {
  try {
    const done = deed();
    return done instanceof Promise ? done.catch(() => {}) : undefined;
  } catch {
    return undefined;
  }
}

function isDefined<T>(value: T | undefined): value is T {
  return value !== undefined;
}
