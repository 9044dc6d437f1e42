/** Compares calls that wait for a server. They take turns in short rounds, and ratios are taken within a round. */
import { short } from "./options.ts";
import { table, times } from "./report.ts";
import { median } from "./stats.ts";

const ROUNDS = short ? 3 : 25;
/** The duration of one contender's turn with parallel calls, ms. */
const FOR_MS = short ? 80 : 200;

/** Returns the calls a second of parallel callers, each of which calls again as soon as it is answered. */
export async function sideBySide(calls: readonly (() => Promise<unknown>)[]): Promise<number> {
  let answered = 0;
  const start = performance.now();
  const end = start + FOR_MS;
  await Promise.all(
    calls.map(async (call) => {
      while (performance.now() < end) {
        await call();
        answered += 1;
      }
    }),
  );
  return (1000 * answered) / (performance.now() - start);
}

/** Returns the figures of each contender, one for each round, after a warm-up round. */
export async function inTurns(
  measure: Readonly<Record<string, () => Promise<number>>>,
): Promise<Map<string, number[]>> {
  const turns = Object.entries(measure);
  const found = new Map(turns.map(([name]) => [name, [] as number[]]));
  for (let round = -1; round < ROUNDS; round++) {
    for (let i = 0; i < turns.length; i++) {
      const [name, take] = turns[(round + 1 + i) % turns.length] ?? ["", async () => 0];
      const figure = await take();
      if (round >= 0) found.get(name)?.push(figure);
    }
  }
  return found;
}

/** Prints the figures, and returns a function that compares them. The first contender is the baseline. */
export function print(
  title: string,
  found: ReadonlyMap<string, readonly number[]>,
  show: (figure: number) => string,
) {
  const [baseline = ""] = found.keys();
  const ratio = (name: string, other = baseline) => {
    const others = found.get(other) ?? [];
    return median((found.get(name) ?? []).map((figure, i) => figure / (others[i] ?? Number.NaN)));
  };
  console.log(`\n${title}`);
  table(
    ["", "median", "to the baseline"],
    [...found].map(([name, figures]) => [name, show(median(figures)), times(ratio(name))]),
  );
  return ratio;
}

export const perSecond = (figure: number) => `${Math.round(figure).toLocaleString("en")}/s`;
