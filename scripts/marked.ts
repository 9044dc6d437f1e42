import { readFileSync, writeFileSync } from "node:fs";

/** Replaces what a page has between `<!-- name: begin -->` and `<!-- name: end -->`. */
export function writeMarked(page: string, name: string, text: string): void {
  const [begin, end] = [`<!-- ${name}: begin -->\n`, `<!-- ${name}: end -->`];
  const old = readFileSync(page, "utf8");
  const [before, after] = [old.indexOf(begin), old.indexOf(end)];
  if (before < 0 || after < before) throw new Error(`${page} lacks ${begin.trim()} or ${end}`);
  writeFileSync(page, old.slice(0, before + begin.length) + text + old.slice(after));
}
