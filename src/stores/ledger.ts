/**
 * The ledger of a limit that is divided among members: who holds which part of it.
 *
 * A limit is `pool` parts. Each member (a region, or a process) holds some of them, on a lease; the rest is
 * free. A member exchanges one message with the ledger in each interval: it says what it still holds, what it wants and
 * how great its demand is; it learns what it holds from now on, and the rows of all members, from which it computes what
 * it should want. The ledger itself divides nothing. It keeps one promise: what all members hold is at most `pool`.
 *
 *   exchange            ledger, 90 parts: A holds 60, B holds 30
 *   B wants 60          no part is free: B's row says so
 *   A reads B's row, uses only 30 from now on, and then says so
 *   A holds 30          30 are released. B lacks 30: they are handed to B
 *   B holds 30          B gets the 30, and uses 60
 *
 * A part that a member has released may be used by another one at once, since the one who says so has stopped using it.
 * A part that the ledger believes to be free may not: the ledger may have gone back in time (a restored backup, a replica
 * that took over), and forgotten who took it. So it is promised first, and may be used when its member has waited for `gap`
 * ms, by its own clock. `gap` is one interval, in which every member sends a message. A member shows that the ledger has
 * forgotten something if an answered message of it is later than its row, it holds more than its row says, or it knows of
 * a later start of the ledger. Then the ledger is closed for one lease: promises are void and nothing is handed on or
 * fresh. When it opens again, all leases that it could have forgotten are over. A member that does not know its row gets
 * nothing from it: the row may be an old one, and its parts may be in other hands.
 *
 * A reply may be lost. What it has brought is a gift again if the member's next message answers an earlier one: no permit
 * of it can have been used. A message may be lost, or only its reply. So a member says what it has released in each message
 * until a reply comes, with the number of the message that said so first; the ledger uses what is later than the row. If
 * no reply has reached a member for a lease, although its messages arrive, nothing is kept for it until one does. If its
 * messages did not come either, the first that comes counts.
 *
 * `fresh` counts parts of which no permit was used, so that their next holder may use their burst at once. All others
 * start empty with their next holder. Free parts are fresh again when what was used of them is back: until then they rest.
 * The member that releases them says for how long; of one that was cut off it is not known, so `keep` ms after
 * its lease, and two intervals; of what was forgotten, `keep` ms after the ledger opens. They rest in groups, for up to a
 * sixteenth longer than they must, so that there are few. Who gets parts that are not fresh gets those that rest longest. Where
 * parts are of no use before they are fresh (`rests`), only those that are fresh are handed on or promised.
 *
 * Members have different `keep` while a deploy changes their windows. So each row says its member's, and the largest of
 * all leases and the message counts: nothing is fresh too early for a member with a longer window. When no lease says that
 * one any more, no part rests longer than one that is used now.
 *
 * The row of a member whose lease is over is kept until what it has used is back, for its number: so long the member shows
 * what the ledger has forgotten. Where parts rest, others have no use for its parts before they are fresh. So they stay in
 * its row, and the member may claim what it held when its lease ended: it alone knows which of these parts are fresh,
 * and what was used of the others comes back as if nothing had happened. It uses none of them meanwhile, and wants
 * nothing else before it is answered. A claim is for all or nothing: who has fewer parts than it thinks does not know which.
 *
 * A record without messages lives until all parts are fresh, for `keep` ms, and two intervals, after the last lease in it,
 * and for a lease more, as rows do: a message may be as late.
 * A later one that begins as if it were new, with all parts free and fresh, has forgotten nothing.
 *
 * Messages and records are texts of whole numbers below 2^53, so that `ledger.lua`, the twin of this file, computes the
 * same. Whatever a message says, its numbers count as 0 to `MOST`, so that all members can read the record.
 *
 * Times are ms of the store's clock. If it jumps forward, rows lapse early: their members then hold more than their rows
 * say; and what was used is fresh early. If it jumps back by up to a second it stands still, since the clocks of processes
 * differ by as much; if by more, a row lapses later than it should by the time since the message before.
 *
 * `ledger-text.ts` says how messages and records are written.
 */

import {
  type LedgerRecord,
  type Resting,
  type Row,
  readLedger,
  writeLedger,
} from "./ledger-text.ts";

/** The whole limit. Fractions are counted in these parts. */
export const WHOLE = 1e9;

/** Where processes give the time to a store, their clocks differ by no more. */
const CLOCKS_DIFFER_MS = 1000;

/** So many rows are kept whose leases are over, those that came last. */
const MOST_LAPSED = 64;
/** Rests end at instants that are a power of 2 apart, no more than this part of the rest. */
const STEPS = 16;
/** Numbers of a message count as no more than this, so that sums of some of them are whole numbers, too. */
const MOST = 1e15;

function readNumber(text: string): number {
  return Math.min(MOST, Math.max(0, Math.floor(Number(text) || 0)));
}

/** Takes part in an exchange: returns the reply. */
export type Exchange = (key: string, message: readonly string[]) => Promise<string>;

/** Returns the reply to the message, and the next record with the time for which it must be kept; absent: unchanged. */
export function exchange(
  text: string | undefined,
  message: readonly string[],
  timeMs: number,
): { readonly reply: string; readonly record?: string; readonly lifeMs: number } {
  const [id = "", region = "", ...numbers] = message;
  const [number = 0, answered = 0, known = 0, sent = 0, said = 0, want = 0, ...more] =
    numbers.map(readNumber);
  const [
    demand = 0,
    waited = 0,
    lease = 0,
    gap = 0,
    ownKeep = 0,
    pool = 0,
    rests = 0,
    claim = 0,
    ...releases
  ] = more;
  const record = text === undefined ? undefined : readLedger(text);
  const before = record?.last ?? 0;
  const now = before - CLOCKS_DIFFER_MS <= timeMs ? Math.max(before, timeMs) : timeMs;
  // in the future if the clock was ahead then
  const since = Math.min(known, now);
  // 0 means that it is not known
  const start = since > 0 ? since : Math.max(1, now);
  const was = record ?? begin(start, now, lease, ownKeep, pool);
  let { created, closed, dropped } = was;
  created = Math.min(created, Math.max(1, now));
  // by how much the clock has jumped back: all times that it gave before are further away than they were
  const back = Math.max(0, was.last - now);
  closed -= back;
  dropped -= back;
  for (const row of was.rows) {
    row.lapse -= back;
    row.heard -= back;
  }
  // not those of dead members: a window that was made shorter would last for one of the long ones more
  const live = was.rows.filter((row) => row.lapse > now);
  const keep = Math.max(ownKeep, ...live.map((row) => row.keepMs));
  const longest = keep + 2 * gap;
  // until instants that are the same for all, so that there are few groups
  const roundUp = (ms: number) => {
    let step = 1;
    while (step * 2 * STEPS <= ms) step *= 2;
    return Math.ceil((now + ms) / step) * step - now;
  };
  let resting: Resting[] = [];
  const rest = (parts: number, restMs: number) => {
    const after = resting.findIndex((group) => group.restMs >= restMs);
    const place = after < 0 ? resting.length : after;
    const same = resting[place]?.restMs === restMs;
    const all = parts + (same ? (resting[place]?.parts ?? 0) : 0);
    resting.splice(place, Number(same), { parts: Math.min(MOST, all), restMs });
  };
  const release = (parts: number, leastMs: number) => {
    if (leastMs > 0) rest(parts, roundUp(leastMs));
  };
  // used parts that rest already: rounded up again, they would rest without end
  const restOn = (parts: number) => {
    const last = resting.at(-1);
    if (last !== undefined) last.parts = Math.min(MOST, last.parts + parts);
  };
  // a member that is gone may have had a longer window
  const capMs = roundUp(Math.max(longest, closed - now + keep));
  for (const [i, group] of was.resting.entries()) {
    const restMs = Math.min(capMs, group.restMs - Math.max(0, now - was.last));
    // who gets parts reads in the last one for how long they rest, also if it has none left
    const isLast = i === was.resting.length - 1;
    if (restMs > 0 && (group.parts > 0 || isLast)) rest(group.parts, restMs);
  }
  const others: Row[] = [];
  let me: Row = { ...NOTHING, id, region, number: 0, lapse: 0, keepMs: 0, heard: now };
  // if the ledger has forgotten something, this lease may have been renewed until the ledger opens
  const restMsOf = (row: Row) => Math.max(Math.min(row.lapse, now) + longest, closed + keep) - now;
  let lapsed = was.rows.length - live.length;
  for (const row of was.rows) {
    let isKept = true;
    if (row.lapse <= now) {
      const restMs = restMsOf(row);
      // its member goes by its own numbers, and its messages may be late by a lease
      const untilMs = Math.max(now + restMs, row.lapse + row.keepMs + 2 * gap) + lease;
      isKept = untilMs > now && lapsed <= MOST_LAPSED;
      if (lapsed > MOST_LAPSED) dropped = Math.max(dropped, untilMs);
      // one that was not renewed since the ledger had forgotten something may be of long ago
      const mayClaim = isKept && restMs > 0 && rests > 0 && row.lapse > closed;
      if (!mayClaim && row.held > 0) release(row.held, restMs);
      restOn(usedOf(row));
      const { held, brought, broughtFresh } = row;
      Object.assign(row, NOTHING, mayClaim ? { held, brought, broughtFresh } : {});
      lapsed -= 1;
    }
    if (row.id === id) me = row;
    else if (isKept) others.push(row);
  }
  const isLate = number <= me.number || (sent > 0 && now - sent > lease);
  if (isLate) return { reply: `late ${now}`, lifeMs: 0 };
  let freed = 0;
  let usedUp = 0;
  const used: Resting[] = [];
  for (let i = 0; i < releases.length; i += 3) {
    const [by = 0, parts = 0, restMs = 0] = releases.slice(i, i + 3);
    // its row is without those that came before
    if (by <= me.number) continue;
    // what is said again may have come before, and its row with it: a late message may have brought that back
    const leastMs = by < number && now < closed ? closed + keep - now : 0;
    const ms = Math.max(leastMs, Math.min(longest, restMs));
    if (ms === 0) freed = Math.min(MOST, freed + parts);
    else {
      usedUp = Math.min(MOST, usedUp + parts);
      used.push({ parts, restMs: ms });
    }
  }
  if (answered === me.number) {
    me.heard = now;
  } else {
    // the last reply was lost
    me.held -= me.brought;
    me.gift += me.brought;
    me.giftFresh += me.broughtFresh;
  }
  // one that has given everything back has no row, and for a while one that was dropped for lack of room has none
  const isAbsent = me.number === 0 && (now < dropped ? said : said + want + claim) === 0;
  const isOlder = me.number < answered && !isAbsent;
  const isKnown = answered > 0 && answered <= me.number && since <= created && now >= closed;
  const deafMs = now - me.heard - lease;
  // sooner than the member gives up: a member that begins anew does not say since when it hears nothing
  const mayReclaim = isKnown && deafMs <= keep;
  const isReclaimed = mayReclaim && claim <= me.held && countOf(others) + claim <= pool;
  const held = said > 0 || !isReclaimed ? said : claim;
  // if a message does not say how long a part rests: a member that hears nothing has used none since its lease ended
  const unusedMs = answered > 0 ? Math.max(0, deafMs) : 0;
  const ownRestMs = Math.max(longest - unusedMs, closed + keep - now);
  const isNew = answered === 0 && held === 0;
  // what a row has that its member does not know any more
  if (isNew) me = { ...me, held: me.held + me.gift, gift: 0, giftFresh: 0 };

  const rows = [...others, me];
  const hasForgotten = isOlder || held > me.held || since > created;
  const released = hasForgotten ? 0 : me.held - held;
  if (hasForgotten) {
    created = Math.max(created, since);
    closed = now + lease;
    for (const row of rows) {
      // other members may have longer leases
      closed = Math.max(closed, row.lapse);
      row.gift = 0;
      row.giftFresh = 0;
      row.promised = 0;
      row.promisedFresh = 0;
      row.brought = 0;
      row.broughtFresh = 0;
    }
  }
  const isOpen = now >= closed;
  if (resting.length === 0) me.promisedFresh = me.promised;
  const isDue = waited >= gap;
  const usedBefore = usedOf(me);
  // what it does not want any more is free, and so is what it would not learn of
  const wanted = Math.max(0, (deafMs > 0 ? 0 : want) - held);
  const got = Math.min(wanted, me.gift + (isDue ? me.promised : 0));
  const gotFresh = Math.min(got, me.giftFresh + (isDue ? me.promisedFresh : 0));
  me.promised = isDue ? 0 : Math.min(wanted - got, me.promised);
  me.promisedFresh = Math.min(me.promised, me.promisedFresh);
  const usedBack = usedBefore - (got - gotFresh) - (me.promised - me.promisedFresh);
  // after its row was over: if it was so before
  const isDeaf = deafMs > 0 && me.lapse > Math.min(now, me.heard + 2 * lease);
  const wants = isDeaf ? 0 : want;
  Object.assign(me, { number, held: held + got, want: wants, lapse: now + lease });
  Object.assign(me, { gift: 0, giftFresh: 0, keepMs: ownKeep, demand: isDeaf ? 0 : demand });
  Object.assign(me, { brought: got, broughtFresh: gotFresh });
  restOn(usedBack);

  // after the ledger had forgotten something there may be rows for more than the pool
  let left = Math.min(released, Math.max(0, pool - countOf(rows)));
  let leftFresh = Math.max(0, Math.min(freed, released) - (released - left));
  const hasUsed = left > leftFresh;
  // of these it does not say how long they rest
  const unsaid = Math.max(0, released - freed - usedUp);
  if (unsaid > 0 && ownRestMs > 0) used.push({ parts: unsaid, restMs: ownRestMs });
  used.sort((a, b) => b.restMs - a.restMs);
  for (const row of isOpen && !isNew ? others : []) {
    const lack = row.want - row.held - row.gift - row.promised;
    // where parts rest, used ones are of no use to it, and rest at the ledger for as long as each of them has to
    const given = Math.max(0, Math.min(lack, rests > 0 ? leftFresh : left));
    const givenFresh = Math.min(leftFresh, given);
    row.gift += given;
    row.giftFresh += givenFresh;
    left -= given;
    leftFresh -= givenFresh;
  }
  let toRest = left - leftFresh;
  for (const { parts, restMs } of used) {
    const some = Math.min(parts, toRest);
    // also if all of it was handed on: who gets it reads here for how long it rests
    if (some > 0 || (hasUsed && rests === 0)) release(some, restMs);
    toRest -= some;
  }
  const free = Math.max(0, pool - countOf(rows));
  if (hasForgotten) {
    resting = [{ parts: free, restMs: Math.max(closed - now + keep, longestRest(resting)) }];
  }
  const fresh = Math.max(0, free - resting.reduce((sum, { parts }) => sum + parts, 0));
  if (isOpen && me.promised === 0 && wants > me.held) {
    me.promised = Math.min(wants - me.held, rests > 0 ? fresh : free);
    me.promisedFresh = Math.min(me.promised, fresh);
    let toTake = me.promised - me.promisedFresh;
    for (const group of [...resting].reverse()) {
      const some = Math.min(group.parts, toTake);
      group.parts -= some;
      toTake -= some;
    }
  }
  const lapse = Math.max(...rows.map((row) => row.lapse));
  // for as long as rows are kept: a message may be late by a lease
  const lifeMs = Math.max(lapse - now + longest, longestRest(resting)) + lease;
  if (me.held + me.promised + want + claim === 0) rows.pop();
  const next = writeLedger({ created, closed, last: now, dropped, resting, rows });
  return { reply: `${me.held} ${gotFresh}\n${next}`, record: next, lifeMs };
}

/** A new record is closed for as long as leases of one that was lost may last, and all rests while their parts matter. */
function begin(
  created: number,
  now: number,
  lease: number,
  keep: number,
  pool: number,
): LedgerRecord {
  // 0 if the clock has jumped back since
  const age = Math.max(0, now - created);
  const resting = [{ parts: pool, restMs: lease + keep - age }];
  return { created, closed: now - age + lease, last: now, dropped: 0, resting, rows: [] };
}

/** Returns after how many ms all free parts are fresh. */
export function longestRest(resting: LedgerRecord["resting"]): number {
  return resting.at(-1)?.restMs ?? 0;
}

/** What the ledger keeps for a member. */
export function sizeOf(row: Row): number {
  return row.held + row.gift + row.promised;
}

/** Returns how many parts the member has not got yet that are not fresh. */
function usedOf(row: Row): number {
  return row.gift - row.giftFresh + row.promised - row.promisedFresh;
}

/** Returns how many parts are not free. */
function countOf(rows: readonly Row[]): number {
  return rows.reduce((sum, row) => sum + sizeOf(row), 0);
}

const NOTHING = {
  held: 0,
  gift: 0,
  giftFresh: 0,
  promised: 0,
  promisedFresh: 0,
  want: 0,
  demand: 0,
  brought: 0,
  broughtFresh: 0,
};
