/**
 * The pieces of a target: what is between two plain slashes. Most are one segment to every server, and
 * are written as that segment. Others are unclear: "a%2fb" is two segments to a server that decodes
 * first, and one to a router that splits first; ";a" is a segment, or nothing.
 */
import { decode } from "./decode.ts";
import { fold, MARKED, segmentsOf } from "./segments.ts";

export type Piece = string | UnclearPiece;

/** A piece of which servers take different segments, always in this order. */
export interface UnclearPiece {
  /** All segments that a server may find in it. Some servers take several in a row for one. */
  readonly segments: readonly string[];
  /** How many of the first segments no server leaves out. */
  readonly sure: number;
  /** Whether there is a segment to some servers where others find none. */
  readonly hasGaps: boolean;
  /** Whether the path may end in it, behind the sure segments. */
  readonly mayEnd: boolean;
}

/** What precedes the path of a target. */
interface Beginning {
  /** A host that some servers take for the first segment. */
  readonly host?: string;
  /** Whether the first segment may be a host. */
  readonly mayBeginWithHost?: boolean;
}

/** @param raw the path as it came */
export function* piecesOf(
  raw: string,
  { host, mayBeginWithHost = false }: Beginning,
): Generator<Piece> {
  if (host !== undefined) yield { segments: [host], sure: 0, hasGaps: false, mayEnd: false };
  let mayBeHost = mayBeginWithHost;
  const texts = raw.split("/");
  for (const [i, text] of texts.entries()) {
    if (i === 0 && text === "") continue;
    const piece = pieceOf(fold(decode(text)));
    const isUnclear = typeof piece !== "string";
    if (!mayBeHost) yield piece;
    else if (isUnclear) yield { ...piece, sure: 0 };
    else yield { segments: [piece], sure: 0, hasGaps: false, mayEnd: false };
    if (!isUnclear || piece.segments.length > 0) mayBeHost = false;
  }
}

/** @param text decoded and folded */
function pieceOf(text: string): Piece {
  const [only, more] = segmentsOf(text);
  if (only === text && more === undefined) return text;
  const mark = text.search(/[;?#]/);
  const segments = [...segmentsOf(text.replace(MARKED, ""))];
  const mayEnd = mark >= 0;
  const sure = mayEnd ? [...segmentsOf(text.slice(0, mark))].length : segments.length;
  const hasGaps = mayEnd || segments.length < text.split(/[/\\]/).length;
  return { segments, sure, hasGaps, mayEnd };
}
