// Reduces a source map to what a stack trace needs: the line that each piece of code is from. Columns, names and the
// text of the sources would make it several times as large.

import { decode, encode, type SourceMapSegment } from "@jridgewell/sourcemap-codec";

export function lineMap(map: string): string {
  const { sources, mappings } = JSON.parse(map);
  const lines = decode(mappings).map((segments) => {
    const kept: SourceMapSegment[] = [];
    for (const [column, source, line] of segments) {
      if (source === undefined || line === undefined) continue;
      const last = kept.at(-1);
      if (last?.[1] !== source || last[2] !== line) kept.push([column, source, line, 0]);
    }
    return kept;
  });
  return JSON.stringify({ version: 3, sources, names: [], mappings: encode(lines) });
}
