import { Bucket, type MakeWay } from "./way.ts";
import { type Scene, type Size, STEP_MS, WARMUP_MS, World } from "./world.ts";

/** A way has adapted to a change when it grants so much of what could be granted, for so long, ms. */
const ADAPTED = 0.95;
const FOR_MS = 500;
/** What it grants beyond the bound by rounding. */
const ROUNDING = 1e-6;

export interface Outcome {
  readonly callWaits: string;
  /** A second. */
  readonly homeCalls: number;
  readonly nearCalls: number;
  /** Granted ÷ what one bucket that knows all at once grants, by scene. */
  readonly utilisation: ReadonlyMap<Scene["name"], number>;
  /** The most permits beyond `capacity + rate × t` in any time t, in permits of a second of the limit. */
  readonly overshoot: number;
  /** The longest time after a change, ms; `Infinity`: it never adapts to one of them. */
  readonly adaptMs: number;
}

export interface Contender {
  readonly name: string;
  readonly make: MakeWay;
  /** The part of the processes that is simulated, of which all others are copies. */
  readonly sample: number;
}

/** Plays a day. */
export function play(size: Size, dayMs: number, { make, sample }: Contender): Outcome {
  const world = new World({ ...size, processes: size.processes * sample }, dayMs);
  const way = make(world);
  const ideal = new Bucket(world.rate, world.capacity);
  const bound = new Bucket(world.rate, world.capacity);
  const wanted = new Float64Array(world.size.processes);
  const granted: number[] = [];
  const possible: number[] = [];
  let overshoot = 0;
  for (let nowMs = -WARMUP_MS; nowMs < dayMs; nowMs += STEP_MS) {
    world.ask(nowMs, wanted);
    const permits = way.step(nowMs, wanted);
    ideal.fill(STEP_MS);
    const most = ideal.draw(wanted.reduce((sum, each) => sum + each, 0));
    bound.fill(STEP_MS);
    bound.level -= permits;
    overshoot = Math.max(overshoot, -bound.level);
    if (nowMs < 0) {
      way.homeCalls = 0;
      way.nearCalls = 0;
      continue;
    }
    granted.push(permits);
    possible.push(most);
  }
  const within = (fromMs: number, toMs: number) => {
    const sum = (steps: readonly number[]) =>
      steps.slice(fromMs / STEP_MS, toMs / STEP_MS).reduce((all, each) => all + each, 0);
    return sum(granted) / sum(possible);
  };
  const { scenes, changes } = world;
  const ends = [...changes, ...scenes.flatMap(({ fromMs, toMs }) => [fromMs, toMs]), dayMs];
  const adaptMs = changes.map((change) => {
    const next = Math.min(...ends.filter((end) => end > change));
    for (let at = change; at + FOR_MS <= next; at += STEP_MS) {
      if (within(at, at + FOR_MS) >= ADAPTED) return at - change;
    }
    return Infinity;
  });
  const perSecond = (calls: number) => calls / sample / (dayMs / 1000);
  return {
    callWaits: way.callWaits,
    homeCalls: perSecond(way.homeCalls),
    nearCalls: perSecond(way.nearCalls),
    utilisation: new Map(scenes.map(({ name, fromMs, toMs }) => [name, within(fromMs, toMs)])),
    overshoot: overshoot / (world.rate * 1000) < ROUNDING ? 0 : overshoot / sample,
    adaptMs: Math.max(...adaptMs),
  };
}
