/**
 * What a pipeline asks of a limit, whatever the limit came from: a rule of a file, or a limiter or a count of
 * connections that was given in one call. Limits are asked in stages: `Stages`.
 */
import type { Decision, Limiter } from "smooth-limiter";
import type { Pace } from "../answers/checker.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import type { CheckCall } from "../request.ts";
import type { SlotOptions, Slots } from "../slots.ts";
import type { CountedRule } from "../verdict.ts";

/** The limits that apply to a request, in the order in which they are asked. */
export interface Stages<R extends CountedRule = CountedRule> {
  /** How many requests are in progress: first, because a request that waits for its turn is in progress. */
  readonly slots: readonly SlotLimit<R>[];
  /** Requests per time: all of them grant a request, or none is charged. */
  readonly permits: readonly PermitLimit<R>[];
  /** Bytes per second, of a response to a request that passes. */
  readonly paces: readonly PaceLimit[];
}

export interface SlotLimit<R extends CountedRule = CountedRule> {
  readonly rule: R;
  /** Limits with a lower number are asked first: they hold no slots while others are asked that take longer. */
  readonly order: number;
  /** Whether a slot is free again after some time: needed where a server does not report the end of a request. */
  readonly endsByItself: boolean;
  readonly slots: Slots;
  /** Returns the slot that a request asks for; undefined if the limit does not apply to it. */
  slotFor(call: CheckCall): MaybePromise<SlotOptions | undefined>;
}

export interface PermitLimit<R extends CountedRule = CountedRule> {
  readonly rule: R;
  /** How long a request waits instead of being refused, ms. */
  readonly longestWaitMs: number;
  /** @returns undefined if the limit does not apply to the request, for example because it costs nothing */
  charge(call: CheckCall): MaybePromise<Charge<R> | undefined>;
}

/** What a request asks of one limit. */
export interface Charge<R extends CountedRule = CountedRule> {
  readonly limit: Pick<PermitLimit<R>, "rule" | "longestWaitMs">;
  /** The actor's value by which it is counted. */
  readonly actor: string;
  readonly cost: number;
  /** Undefined: nothing passes. */
  readonly limiter: Limiter | undefined;
  /** Whether there is nothing to do but to ask the limiter: most requests have one such charge. */
  readonly isPlain: boolean;
  /** Returns the decision of a limit that refuses the request whatever was used; undefined if it does not. */
  closed?(): MaybePromise<Decision | undefined>;
  /** Returns a decision of the limiter, checked, or with the times of a calendar. */
  read?(decision: Decision): Decision;
  /** Called when the request was refused. @returns another decision: the actor is blocked */
  refused?(decision: Decision): MaybePromise<Decision | undefined>;
  /** Called when the request passes, if its server reports answers. */
  readonly passed?: Passed | undefined;
}

/**
 * @param undo gives all permits back that were taken for the request
 * @returns what to do when the request is answered, with its status; undefined if the client left without one
 */
export type Passed = (
  decision: Decision,
  undo: () => MaybePromise<void>,
  call: CheckCall,
) => Answered | undefined;

export type Answered = (status: number | undefined) => void;

export interface PaceLimit {
  /** @returns undefined if the limit does not apply to the request */
  pace(call: CheckCall): MaybePromise<Pace | undefined>;
}
