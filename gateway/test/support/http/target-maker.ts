/** Generates disguised request targets from a seed. */

/** Mulberry32: the same numbers for the same seed. */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const HEADS = [
  ..."/ / / / / // /./ /x/../ /.. \\ /\\ /%2f /%2e/ /;/ /;x/ /;/../ /x/%2e%2e/ /x/..%2f /#/../".split(
    " ",
  ),
  ..."/?/../ /%3f/../ /%23/../ //x/ /\\x/ //x//../ http://x/ http://x// http:/ http:///".split(" "),
  ..."http://x%2f http://u@x/ http://x?/ http://x#/ http://x\\ HTTP:\\\\x\\ x:/ /%00/../".split(
    " ",
  ),
  ..."/..;/ /%2e./ /.%00./ /x/..%5c /%5c //x%2f //x;/ http://x; http://[::1]/ http://x:80/ ..\\".split(
    " ",
  ),
  ..."//x //.. http://x http://.. //x%2f.. //x;a //u@x //x: /x/..//x".split(" "),
  ..."/.\t./ \t/ %2f /%c0%af /%c0%ae%c0%ae/ /%252e%252e/ /a%2fb/../ /a/..%2fb/../ *".split(" "),
];
const JOINTS = [
  ..."/ / / / / / // /./ /x/../ %2f \\ %5c ;a=b/ ;/ /; /;/../ /%2e/ /x/%2e%2e/ /x/..%2f /%00/../".split(
    " ",
  ),
  ..."./ %20/ /.. /../ /x%2f../ /\\ \\/ ;x/../ /#/../ %23/ %3f/ /?/../ \t/ %c0%af /x/..;/".split(
    " ",
  ),
];
const TAILS = [
  ...", , , ,/,/x,//,/.,;,;a=b,;/..,;/../..,;\\..,%3b/..,%3bx,?,?x,?/..,?/../..,%3f,%3fx,%3f/..".split(
    ",",
  ),
  ..."#,#x,#/..,%23,%23/../..,%00,%00.html,%00/..,.,%20,%09,%2f,%2f..,\\,\\..,%5c..,/..,/%2e%2e".split(
    ",",
  ),
  ..."/%ff,%ff,%zz,%,/..%2f,/%2e%2e%2f..,\t,/x/..,/x/../..,%3f#,;?,/;/,/%3b,%3f/%2e%2e/x,?\\..".split(
    ",",
  ),
].map((tail) => tail.trim());
const LEAVES = ["secret", "secret", "secret.txt"];

const ONES = [
  ..."7 7 7 a%2fb ; ;x . .. %20 x%3fy x%23y a\\b %2e %2e%2e %00 %5c a;b %252f é %c3%a9 %2f : * {id}".split(
    " ",
  ),
  "",
];

/** @returns a source of targets; most of them reach /vault/:id/secret on some server */
export function patternTargetMaker(seed: number): () => string {
  return targetMaker(seed, (pick, disguise) => [disguise("vault"), pick(ONES), disguise("secret")]);
}

/** @returns a source of targets with one to five of the words */
export function wordTargetMaker(seed: number, words: readonly string[]): () => string {
  return targetMaker(seed, (pick, disguise) =>
    Array.from({ length: Number(pick(["1", "2", "3", "4", "5"])) }, () => disguise(pick(words))),
  );
}

type Pick = (list: readonly string[]) => string;

/** @returns a source of targets; most of them reach /admin/secret on some server */
export function targetMaker(
  seed: number,
  wordsOf: (pick: Pick, disguise: (text: string) => string) => readonly string[] = (
    pick,
    disguise,
  ) => [disguise("admin"), disguise(pick(LEAVES))],
): () => string {
  const random = randomOf(seed);
  const pick = (list: readonly string[]) => list[Math.floor(random() * list.length)] ?? "";
  const mostly = (plain: string, list: readonly string[]) => (random() < 0.4 ? plain : pick(list));
  const disguise = (text: string) => {
    const rate = random() < 0.5 ? 0 : random() * 0.4;
    return Array.from(text, (char) => {
      if (random() >= rate) return char;
      const hex = char.charCodeAt(0).toString(16).padStart(2, "0");
      return [char.toUpperCase(), `%${hex}`, `%${hex.toUpperCase()}`][Math.floor(random() * 3)];
    }).join("");
  };
  return () => {
    const [first = "", ...words] = wordsOf(pick, disguise);
    let target = mostly("/", HEADS);
    if (random() < 0.1) target += pick(HEADS).replace(/^[a-z]*:/i, "");
    target += first;
    for (const word of words) {
      target += mostly("/", JOINTS);
      if (random() < 0.1) target += pick(JOINTS);
      target += word;
    }
    target += mostly("", TAILS);
    if (random() < 0.2) target += pick(TAILS);
    return target;
  };
}
