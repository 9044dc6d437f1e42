/**
 * What the ledger (`ledger.ts`) and its members write: messages, and the record that the ledger keeps and replies with.
 *
 *   record    created closed last dropped, the numbers of each `Resting`, LF; then for each member those of its `Row`, and LF
 *   message   the numbers of `LedgerMessage`
 *   reply     held fresh LF and the record; "late" and the time if the message was sent more than a lease ago, so that
 *             its lease is over, or if a later one of this member was there before
 */

/** What a member tells the ledger about one limit. The order is that of the message. */
export interface LedgerMessage {
  /** Two words without spaces. */
  readonly id: string;
  readonly region: string;
  /** Counts this member's messages. */
  readonly number: number;
  /** Of the last message that was answered, while the record must have a row of it; else 0. */
  readonly answered: number;
  /** When the ledger as a whole was created, as far as the member knows; 0: it does not know. */
  readonly since: number;
  /** When it was sent, as far as the member knows; 0: it does not know. */
  readonly sent: number;
  readonly held: number;
  readonly want: number;
  readonly demand: number;
  /** For how long the member has known what is promised to it, by its own clock. */
  readonly waitedMs: number;
  readonly leaseMs: number;
  readonly gapMs: number;
  /** What is used counts for no longer: the record is kept for at least so long after the last lease in it. */
  readonly keepMs: number;
  readonly pool: number;
  /** 1 if parts that are not fresh are of no use before they are; else 0. */
  readonly rests: number;
  /**
   * After its lease: so many parts it would hold again if the ledger has them for it still, all or none of them. It says
   * so with a `held` and a `want` of 0, until it is answered.
   */
  readonly claim: number;
  /**
   * What it has released with this message and with those of which it does not know whether they came. They end the
   * message.
   */
  readonly released: readonly Released[];
}

/** Released parts, the number of the message that has said so first, and after how many ms they are fresh. */
export interface Released extends Resting {
  readonly number: number;
}

/** A member's row. The order is that of the record. */
export interface Row {
  readonly id: string;
  readonly region: string;
  number: number;
  held: number;
  /** Handed to the member, which learns of it with its next message; and how many of these parts are fresh. */
  gift: number;
  giftFresh: number;
  /** Promised to the member; and how many of these parts are fresh. */
  promised: number;
  promisedFresh: number;
  want: number;
  demand: number;
  /** When the lease is over. */
  lapse: number;
  /** What the member uses counts for no longer. */
  keepMs: number;
  /** What the last reply has brought of what it holds, and how much of that is fresh. If the reply is lost it is a gift again. */
  brought: number;
  broughtFresh: number;
  /** When its last message came that said that the reply before had arrived. */
  heard: number;
}

export interface LedgerRecord {
  /** When the ledger as a whole was created, as far as this record knows. */
  readonly created: number;
  /** Nothing is handed on or promised before this. */
  readonly closed: number;
  /** When the last message came. */
  readonly last: number;
  /** Until then there may have been more rows of dead members than are kept. */
  readonly dropped: number;
  /** Those that rest longest are last. All other free parts are fresh. */
  readonly resting: readonly Resting[];
  readonly rows: readonly Row[];
}

/** Free parts that are fresh in so many ms. */
export interface Resting {
  parts: number;
  readonly restMs: number;
}

/** The record in the form in which a store keeps it. */
export function writeLedger(record: LedgerRecord): string {
  const { created, closed, last, dropped, resting, rows } = record;
  const groups = resting.map(({ parts, restMs }) => ` ${parts} ${restMs}`);
  let text = `${created} ${closed} ${last} ${dropped}${groups.join("")}\n`;
  for (const row of rows) {
    const { id, region, number, held, gift, giftFresh, promised, promisedFresh } = row;
    const { want, demand, lapse, keepMs, brought, broughtFresh, heard } = row;
    text += `${id} ${region} ${number} ${held} ${gift} ${giftFresh} ${promised} ${promisedFresh} ${want} ${demand} ${lapse} ${keepMs} ${brought} ${broughtFresh} ${heard}\n`;
  }
  return text;
}

const RECORD = /^-?\d+(?: -?\d+){3}(?: \d+ \d+)*\n(?:[^ \n]+ [^ \n]+(?: -?\d+){13}\n)*$/;

/**
 * Reads a record. Each field is named here, because rest and spread would take ten times as long.
 *
 * @throws TypeError if it is none
 */
export function readLedger(text: string): LedgerRecord {
  if (!RECORD.test(text)) failRecord(text);
  const lines = text.split("\n");
  const at = (fields: readonly string[], i: number): number => {
    const number = Number(fields[i]);
    return Number.isSafeInteger(number) ? number : failRecord(text);
  };
  const rows = lines.slice(1, -1).map((line): Row => {
    const fields = line.split(" ");
    const [id = "", region = ""] = fields;
    return {
      id,
      region,
      number: at(fields, 2),
      held: at(fields, 3),
      gift: at(fields, 4),
      giftFresh: at(fields, 5),
      promised: at(fields, 6),
      promisedFresh: at(fields, 7),
      want: at(fields, 8),
      demand: at(fields, 9),
      lapse: at(fields, 10),
      keepMs: at(fields, 11),
      brought: at(fields, 12),
      broughtFresh: at(fields, 13),
      heard: at(fields, 14),
    };
  });
  const head = lines[0]?.split(" ") ?? [];
  const resting: Resting[] = [];
  for (let i = 4; i < head.length; i += 2) {
    resting.push({ parts: at(head, i), restMs: at(head, i + 1) });
  }
  const [created, closed, last, dropped] = [at(head, 0), at(head, 1), at(head, 2), at(head, 3)];
  return { created, closed, last, dropped, resting, rows };
}

function failRecord(text: string): never {
  throw new TypeError(`the record of the regions is ${JSON.stringify(text.slice(0, 80))}`);
}

/** The message in the form in which a store gets it. */
export function writeMessage(message: LedgerMessage): readonly string[] {
  const { id, region, number, answered, since, sent, held, want, ...more } = message;
  const { demand, waitedMs, leaseMs, gapMs, keepMs, pool, rests, claim, released } = more;
  const numbers = [
    number,
    answered,
    since,
    sent,
    held,
    want,
    demand,
    waitedMs,
    leaseMs,
    gapMs,
    keepMs,
    pool,
    rests,
    claim,
    ...released.flatMap((some) => [some.number, some.parts, some.restMs]),
  ];
  return [id, region, ...numbers.map(String)];
}
