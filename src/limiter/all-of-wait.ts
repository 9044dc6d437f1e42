/**
 * How a combination waits.
 *
 * A caller may only go when every member lets it, and must not hold permits of one member while it
 * waits for another: a device that waits an hour for its own limit would keep a common limit short,
 * and callers that hold permits of a pacing limiter until a window opens would then all go at once.
 * So a waiting caller repeats:
 *
 * 1. Take from all members now, atomically. Done if that succeeds.
 * 2. Otherwise wait in the queue of the binding member alone, the one with the longest wait, as a
 *    caller of that limiter does: first in, first out, re-timed by `setRate` and `pause`.
 * 3. When its permits can be used, take from the other members at that moment, atomically. Done if
 *    that succeeds: all members were taken from at one instant, within the bound of each.
 * 4. Otherwise give the permits back and start again.
 *
 * Worked example: 10 a second and a window of 1000 a minute, used up, with 300 callers. The window
 * binds: all 300 wait in its queue. When it opens one of them also gets its permit of the pace; the
 * others give their permits of the window back and queue for the pace. They go 100 ms apart, each
 * with a permit that the window has left.
 *
 * Step 4 alone could starve a caller where other callers keep two members busy all the time. After
 * it has happened `2 n` times (n members), a caller keeps what it has and waits for the remaining
 * members only. A kept permit is used later than the instant for which it was booked; the delay is the
 * wait for the remaining members. So in any interval a member may grant its own bound plus the permits
 * that such callers have kept.
 *
 * With a concurrency limiter among the members, a caller waits for the place first and holds it while
 * it waits for permits.
 */
import type { Maybe } from "../ground/maybe.ts";
import type { Permits } from "../ground/permits.ts";
import { reserveBehind } from "./backlog.ts";
import type { Decision, Limiter, Reservation, ShareOptions } from "./limiter-api.ts";
import {
  type BoundLimiter,
  boundTo,
  isSharedLimiter,
  type Look,
  type Member,
  memberOf,
  type Part,
  type RateMember,
  type Taken,
} from "./member.ts";
import { refuseShares } from "./options.ts";
import { binds, takeTogether, undoAll } from "./together.ts";

/** A rate limiter of a combination, with its member. */
export interface Entry<L = Limiter> {
  readonly limiter: L;
  readonly member: RateMember;
}

/** A limiter for which a combination can wait. */
type Awaitable = Pick<Limiter, "reserve"> | BoundLimiter;

/** Returns the options that name the share of a call; `undefined` if there are none. */
export function shareOf(options: ShareOptions | undefined): ShareOptions | undefined {
  const { share, weight, priority } = options ?? {};
  const isGiven = share !== undefined || weight !== undefined || priority !== undefined;
  return isGiven ? { share, weight, priority } : undefined;
}

/**
 * Returns the entries for calls of that share: fair limiters bound to it, the others as they are.
 *
 * @param hasFair whether another limiter of the combination is fair
 * @throws TypeError if a share is given and no limiter is fair
 */
export function entriesOf(
  entries: readonly Entry[],
  options: ShareOptions | undefined,
  hasFair = false,
): readonly Entry<Limiter | BoundLimiter>[] {
  const share = shareOf(options);
  if (share === undefined) return entries;
  const bound = entries.map((entry) => {
    if (!isSharedLimiter(entry.limiter)) return entry;
    const limiter = boundTo(entry.limiter, share);
    return { limiter, member: memberOf(limiter) };
  });
  if (!hasFair && bound.every((entry, i) => entry === entries[i])) refuseShares(share);
  return bound;
}

export function partsOf(
  entries: readonly { readonly member: Member }[],
  permits: Permits,
  longestMs: number,
): readonly Part[] {
  return entries.map(({ member }) => ({ member, permits, longestMs, isOptional: false }));
}

/**
 * A caller of n members may give back its permits this many times n before it starts to keep them.
 */
const ROUNDS = 2;

/**
 * Waits until it can take from all members, then takes from them.
 *
 * @returns how long it waited, ms
 */
export async function acquireAll(
  entries: readonly Entry<Awaitable>[],
  permits: Permits,
  signal: AbortSignal | undefined,
): Promise<number> {
  const kept: Taken[] = [];
  let rest = entries;
  let chances = ROUNDS * entries.length;
  let waitedMs = 0;
  try {
    for (;;) {
      const answer = takeTogether(partsOf(rest, permits, 0), { signal });
      // an extra `await` would change the order of callers
      const { passes, looks } = answer instanceof Promise ? await answer : answer;
      if (passes) {
        kept.push(...takenOf(looks));
        signal?.throwIfAborted();
        return waitedMs;
      }
      const binding = bindingOf(looks.map((look) => look?.decision as Decision));
      const { limiter } = rest[binding] as Entry<Awaitable>;
      const reserved =
        reserveBehind in limiter ? limiter[reserveBehind](permits) : limiter.reserve(permits);
      const reservation = await takenBy(reserved, kept);
      waitedMs += await reservation.ready({ signal });
      const others = rest.filter((_, i) => i !== binding);
      const more = await takeTogether(partsOf(others, permits, 0), { signal });
      if (more.passes) {
        kept.push(...takenOf(more.looks));
        signal?.throwIfAborted();
        return waitedMs;
      }
      if (chances > 0) {
        chances -= 1;
        kept.pop();
        await reservation.undo();
      } else {
        rest = others;
      }
    }
  } catch (error) {
    await undoAll(kept.map((taken) => ({ taken })));
    throw error;
  }
}

/**
 * What was taken from each member. Only for requests that passed, so every member took something.
 */
function takenOf(looks: readonly (Look | undefined)[]): readonly Taken[] {
  return looks.map((look) => (look as Look).taken as Taken);
}

/** Adds the reservation to `kept`, so that it is given back if the caller stops waiting. */
async function takenBy(reserved: Maybe<Reservation>, kept: Taken[]): Promise<Reservation> {
  const reservation = reserved instanceof Promise ? await reserved : reserved;
  kept.push({ reservation, undo: () => reservation.undo() });
  return reservation;
}

/** The index of the member with the longest wait. */
function bindingOf(decisions: readonly Decision[]): number {
  return decisions.reduce(
    (binding, decision, i) =>
      binds(decision, decisions[binding] as Decision) && !decision.allowed ? i : binding,
    0,
  );
}
