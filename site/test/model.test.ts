import { readdirSync } from "node:fs";
import { transformSync } from "esbuild";
import * as limiters from "smooth-limiter";
import { FakeClock } from "smooth-limiter/testing";
import * as assert from "uvu/assert";
import { cli, inFolder } from "../../cli/test/support/run.ts";
import { isTriedOneIn, suite } from "../../test/support/suite.ts";
import { readAccessLog } from "../model/access-log.ts";
import {
  ALGORITHM_NAMES,
  type AlgorithmName,
  algorithmOf,
  initialNumbers,
  type Numbers,
  sameNumbers,
  sameOnSliders,
  warmingUp,
  warmUpIntervalMs,
} from "../model/algorithms.ts";
import { toTypeScript, toYaml } from "../model/code.ts";
import {
  comparisonOf,
  fromQuery,
  initialSettings,
  isFair,
  type Settings,
  toQuery,
  VERBS,
} from "../model/settings.ts";
import { boundAt, type Series, simulate, summaryOf, trafficOf } from "../model/simulate.ts";
import {
  type Arrival,
  arrivalsOf,
  MOST_ARRIVALS,
  TRAFFIC_KINDS,
  type TrafficKind,
} from "../model/traffic.ts";
import { drawShares, drawSlope, drawState, drawSums, drawWaiting } from "../view/chart.ts";
import { inWords } from "../view/words.ts";
import { CONFIGURATIONS } from "./configurations.ts";

const settings = (query: string) => fromQuery(query);

const running = suite("the playground's simulation");

for (const query of CONFIGURATIONS) {
  running(`${query}: the bound of the algorithm holds in every interval`, async () => {
    const series = await simulate(settings(query));
    const starts = series.calls
      .flatMap(({ startedMs }) => (startedMs === undefined ? [] : [startedMs]))
      .sort((a, b) => a - b);
    for (const [i, from] of starts.entries()) {
      for (const [j, to] of starts.entries()) {
        if (j < i) continue;
        const used = (j - i + 1) * series.permits;
        // a microsecond: waits are rounded up to whole ones
        assert.ok(used <= boundAt(series, to - from + 0.001) + 1e-6, `${from} to ${to}: ${used}`);
      }
    }
  });
}

running("each call is granted, refused or still waiting, and none before it arrived", async () => {
  for (const query of CONFIGURATIONS) {
    const series = await simulate(settings(query));
    const { arrived, granted, refused, waiting } = summaryOf(series);
    assert.is(arrived, series.calls.length);
    assert.is(granted + refused + waiting, arrived);
    for (const { atMs, startedMs = atMs, refusedMs = atMs } of series.calls) {
      assert.ok(startedMs >= atMs && refusedMs >= atMs);
    }
  }
});

running(
  "a bursty limiter releases callers at its pace, and the state is what it stores",
  async () => {
    const series = await simulate(
      settings("algorithm=smoothBursty&rate=10&burstSeconds=1&traffic=bursts&rps=5&size=20"),
    );
    const starts = series.calls.slice(0, 12).map(({ startedMs }) => Number(startedMs) - 2000);
    // ten are stored, and half a permit more comes within 50 ms: the twelfth waits for the other half
    assert.equal(starts, [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 100]);
    assert.is(series.samples[40]?.level, 10);
    assert.is(series.samples.at(60)?.level, 0);
  },
);

running("a warming-up limiter is cold at first and after a pause", async () => {
  const series = await simulate(
    settings("algorithm=smoothWarmingUp&rate=10&warmupSeconds=2&coldFactor=3&traffic=cold&rps=10"),
  );
  const policy = warmingUp(series.numbers);
  assert.is(series.samples[0]?.level, policy.max);
  assert.is(Math.round(warmUpIntervalMs(policy, series.samples[0]?.level ?? 0)), 300);
  assert.is(warmUpIntervalMs(policy, 0), 100);
  const levels = series.samples.map(({ level }) => level);
  assert.ok(Math.min(...levels.slice(0, 140)) < 12, `${levels}`);
  assert.ok(Math.max(...levels.slice(140)) > 19);
});

running(
  "a fair limiter serves tenants in turn, and one queue in the order of their calls",
  async () => {
    const grantedTo = async (query: string) => {
      const { calls, samples } = await simulate(
        settings(
          `algorithm=smoothBursty&rate=10&burstSeconds=0&rps=9&size=20&traffic=three&${query}`,
        ),
      );
      assert.ok((samples[20]?.waiting.get("c") ?? 0) > 0, "c waits");
      const granted = calls.filter(({ startedMs = Infinity }) => startedMs < 4000);
      return ["a", "b", "c"].map((name) => granted.filter(({ tenant }) => tenant === name).length);
    };
    const [oneQueue, fair, weighted] = await Promise.all(
      ["queue=one", "queue=fair", "queue=fair&weight=3"].map(grantedTo),
    );
    // c sends 60 at once at 0.5 s: in one queue all others wait behind them
    assert.equal(oneQueue, [2, 0, 35]);
    assert.equal(fair, [11, 7, 19]);
    assert.equal(weighted, [10, 11, 16]);
  },
);

running("the choice of the queue counts only where several tenants wait", async () => {
  for (const query of ["verb=try&traffic=three", "traffic=bursts", "traffic=drawn"]) {
    const chosen = settings(`${query}&queue=fair&compare=queue`);
    assert.is(isFair(chosen), false);
    assert.is(comparisonOf(chosen), "none");
    assert.not.match(toTypeScript(chosen), "fair");
  }
  assert.is(comparisonOf(settings("traffic=three&compare=queue")), "queue");
  assert.is(comparisonOf(settings("traffic=bursts&compare=gcra")), "gcra");
});

running("a request that can never pass says so", async () => {
  const series = await simulate(settings("algorithm=gcra&burst=1&permits=5"));
  assert.match(series.error ?? "", /5.*2/);
  assert.is(summaryOf(series).refused, series.calls.length);
});

running("more requests than are simulated are counted", async () => {
  const series = await simulate(settings("traffic=steady&rps=100&seconds=20&verb=try"));
  assert.equal([series.calls.length, series.leftOut], [MOST_ARRIVALS, 2000 - MOST_ARRIVALS]);
  assert.match(inWords(series, 20_000), "Only the first 1000 of 2000 requests are sent");
  const few = await simulate(settings("traffic=steady&rps=10&seconds=2"));
  assert.is(few.leftOut, 0);
  assert.not.match(inWords(few, 2000), "Only");
});

running("numbers beside the charts are short, and an empty store has an axis", async () => {
  for (const query of CONFIGURATIONS) {
    const series = await simulate(settings(query));
    const charts = [
      ...[drawState, drawWaiting].map((draw) => draw(series, 600)),
      ...[drawSums, drawShares].map((draw) => draw(series, undefined, 600)),
      ...(series.algorithm === "smoothWarmingUp" ? [drawSlope(series, 20_000, 420)] : []),
    ];
    const texts = charts.join("").matchAll(/<text[^>]*>([^<]*)/g);
    for (const text of [inWords(series, 20_000), ...Array.from(texts, ([, text = ""]) => text)]) {
      assert.not.match(text, /\d\.\d{3}|\de-?\d/, query);
    }
  }
});

running("counts what happened until an instant", async () => {
  const series = await simulate(settings("algorithm=gcra&rate=1&burst=0&traffic=steady&rps=1"));
  assert.is(summaryOf(series, 3000).granted, 4);
  assert.is(summaryOf(series, 2999).granted, 3);
  assert.is(summaryOf(series).mostInASecond, 1);
});

running.run();

const url = suite("the playground's URL");

url("holds everything but the log", () => {
  for (const query of CONFIGURATIONS) {
    const read = settings(query);
    assert.equal(settings(toQuery(read)), read);
  }
});

url("ignores what is not allowed", () => {
  assert.equal(
    settings("algorithm=x&rate=NaN&verb=&traffic=?&seconds=&compare=%"),
    initialSettings,
  );
  assert.is(settings("algorithm=gcra&rate=1e9&seconds=-5").numbers.rate, 100);
  assert.is(settings("seconds=-5").common.seconds, 2);
  assert.is(settings("bars=zz0").bars[2], 0);
  assert.equal(settings("bars=%00").bars, initialSettings.bars);
});

url.run();

/** Each combination of the ends of the sliders. */
function extremes(algorithm: AlgorithmName): Numbers[] {
  return algorithmOf(algorithm).fields.reduce<Numbers[]>(
    (all, { name, min, max }) =>
      all.flatMap((numbers) => [min, max].map((value) => ({ ...numbers, [name]: value }))),
    [{}],
  );
}

const code = suite("the playground's code");

code("the playground offers every algorithm of the library", async () => {
  const folder = "src/algorithms";
  const modules = await Promise.all(
    readdirSync(folder, { recursive: true, encoding: "utf8" })
      .filter((file) => /.+\/.+\.ts$/.test(file))
      .map((file): Promise<object> => import(`../../${folder}/${file}`)),
  );
  const names = modules.flatMap(Object.keys).filter((name) => Object.hasOwn(limiters, name));
  // toRedisCellReply makes no policy
  const factories = names.filter((name) => !/^to[A-Z]/.test(name));
  assert.equal([...ALGORITHM_NAMES].sort(), factories.sort());
});

/** Settings in which the verb, the numbers and the traffic matter, for every algorithm. */
const OFFERED: readonly string[] = [
  ...CONFIGURATIONS,
  ...ALGORITHM_NAMES.flatMap((algorithm) =>
    Object.keys(VERBS).flatMap((verb) => [
      `algorithm=${algorithm}&verb=${verb}&traffic=three&rps=40&seconds=6`,
      `algorithm=${algorithm}&verb=${verb}&traffic=tenants&rps=15&permits=2&queue=fair&weight=3`,
    ]),
  ),
];

for (const [i, query] of OFFERED.entries()) {
  // six in a row are for one algorithm
  if (!isTriedOneIn(3, i, Math.floor(i / 6))) continue;
  code(`${query}: the TypeScript grants and refuses when the picture does`, async () => {
    const chosen = settings(query);
    assert.equal(await ran(chosen), answersOf(await simulate(chosen)));
  });

  code(`${query}: replay with the YAML grants and refuses what the picture does`, async () => {
    const chosen = settings(query);
    const { seconds = 0 } = chosen.common;
    // the log begins in the middle of a window
    const log = logOf(arrivalsOf(trafficOf(chosen)), Date.UTC(2026, 9, 10, 13, 55, 36, 700));
    const { arrivals, firstMs } = readAccessLog(log);
    const drawn: Settings = { ...chosen, traffic: "log", log: arrivals, logFirstMs: firstMs };
    const text = toYaml(drawn);
    if (text.startsWith("#")) return;
    assert.ok(arrivals.every(({ atMs }) => atMs < seconds * 1000));
    const { granted, waiting, refused } = summaryOf(await simulate(drawn));
    const report = await replayed(text, log);
    assert.equal([report.passed + report.waited, report.refused], [granted + waiting, refused]);
  });
}

code("every algorithm has a rule, or says why there is none, and each other verb says why", () => {
  for (const algorithm of ALGORITHM_NAMES) {
    const texts = Object.keys(VERBS).map((verb) =>
      toYaml(settings(`algorithm=${algorithm}&verb=${verb}`)),
    );
    const rules = texts.filter((text) => !text.startsWith("#"));
    assert.is(rules.length, algorithm.startsWith("smooth") ? 0 : 1, algorithm);
    assert.ok(texts.every((text) => text.length > 20));
  }
  assert.match(toYaml(settings("algorithm=gcra&verb=wait")), "choose: a caller is granted now");
  assert.match(toYaml(settings("algorithm=leakyBucket&verb=try")), "choose: a caller waits");
  assert.match(
    toYaml(settings("algorithm=gcra&traffic=three&queue=fair")),
    "# Rules have no fair queue",
  );
});

code(
  "a log of seven clients in whole seconds: replay refuses what the picture refuses",
  async () => {
    const lines = Array.from({ length: 600 }, (_, i) => {
      const time = `10/Oct/2026:13:55:${String(Math.floor(i / 20) + 17).padStart(2, "0")} +0200`;
      return `192.0.2.${i % 7} - - [${time}] "GET / HTTP/1.1" 200 5`;
    });
    for (const algorithm of ALGORITHM_NAMES) {
      for (const verb of Object.keys(VERBS)) {
        const { arrivals, firstMs, seconds } = readAccessLog(lines.join("\n"));
        const chosen: Settings = {
          ...settings(`algorithm=${algorithm}&verb=${verb}&windowSeconds=7&seconds=${seconds}`),
          traffic: "log",
          log: arrivals,
          logFirstMs: firstMs,
        };
        const text = toYaml(chosen);
        if (text.startsWith("#")) continue;
        const { arrived, granted, waiting, refused } = summaryOf(await simulate(chosen));
        assert.is(arrived, 600);
        assert.ok(refused > 200, `${algorithm} refuses ${refused}`);
        const report = await replayed(text, lines.join("\n"));
        assert.equal([report.passed + report.waited, report.refused], [granted + waiting, refused]);
      }
    }
  },
);

code(
  "a log of seven clients on a fair limiter: each client is a share, as in the code",
  async () => {
    const lines = Array.from(
      { length: 200 },
      (_, i) =>
        `192.0.2.${Math.floor(Math.sqrt(i)) % 7} 2026-10-10T11:55:${36 + Math.floor(i / 40)}Z`,
    );
    const { arrivals: log } = readAccessLog(lines.join("\n"));
    const chosen: Settings = {
      ...settings("algorithm=smoothBursty&burstSeconds=0&verb=wait&queue=fair&seconds=30"),
      traffic: "log",
      log,
    };
    assert.equal(await ran(chosen), answersOf(await simulate(chosen)));
  },
);

type Answer = readonly [
  tenant: string,
  startedMs: number | undefined,
  refusedMs: number | undefined,
];

function answersOf({ calls }: Series): Answer[] {
  return calls.map(({ tenant, startedMs, refusedMs }) => [tenant, startedMs, refusedMs]);
}

/** Sends the traffic to the program that the playground offers. */
async function ran(chosen: Settings): Promise<Answer[]> {
  const clock = new FakeClock();
  const create: typeof limiters.Limiter.create = (policies, options) =>
    limiters.Limiter.create(policies, { ...options, clock });
  const module = { exports: {} as { beforeEachRequest(tenant: string): Promise<void> } };
  const { code: script } = transformSync(toTypeScript(chosen), { loader: "ts", format: "cjs" });
  new Function("module", "require", script)(module, () => ({ ...limiters, Limiter: { create } }));
  const answers: Answer[] = [];
  for (const [i, { atMs, tenant, caller = tenant }] of arrivalsOf(trafficOf(chosen)).entries()) {
    if (i === MOST_ARRIVALS) break;
    await clock.advance(Math.max(0, atMs - clock.now()));
    answers.push([tenant, undefined, undefined]);
    module.exports.beforeEachRequest(caller).then(
      () => {
        answers[i] = [tenant, clock.now(), undefined];
      },
      () => {
        answers[i] = [tenant, undefined, clock.now()];
      },
    );
  }
  await clock.advance(Number(chosen.common.seconds) * 1000 - clock.now());
  return answers;
}

/** An access log of the arrivals, with fractions of a second. */
function logOf(arrivals: readonly Arrival[], startMs: number): string {
  return arrivals
    .slice(0, MOST_ARRIVALS)
    .map(({ atMs, tenant }) => {
      const time = new Date(startMs + Math.floor(atMs)).toISOString();
      return JSON.stringify({ time, url: "/", ip: tenant });
    })
    .join("\n");
}

/** What `replay` reports of a log. */
async function replayed(
  rules: string,
  log: string,
): Promise<{ passed: number; waited: number; refused: number }> {
  return inFolder({ "rules.yaml": rules }, async (path) => {
    const { code, out, err } = await cli(["replay", path("rules.yaml"), "-", "--json"], {
      stdin: log,
    });
    assert.is(code, 0, err);
    return JSON.parse(out).report;
  });
}

for (const algorithm of ALGORITHM_NAMES) {
  const chosen: Settings = { ...initialSettings, algorithm, numbers: initialNumbers(algorithm) };

  code(`${algorithm}: other algorithms take over its pace, on their sliders`, () => {
    for (const other of ALGORITHM_NAMES) {
      const numbers = sameOnSliders(algorithm, chosen.numbers, other);
      const { rate } = algorithmOf(other).pace(numbers);
      assert.is(rate, algorithmOf(algorithm).pace(chosen.numbers).rate);
    }
  });

  code(
    `${algorithm}: beside it stand algorithms of the same pace, at each end of the sliders`,
    () => {
      for (const numbers of extremes(algorithm)) {
        const { rate } = algorithmOf(algorithm).pace(numbers);
        for (const other of ALGORITHM_NAMES) {
          const same = sameNumbers(algorithm, numbers, other);
          algorithmOf(other).policy(same);
          const found = algorithmOf(other).pace(same).rate;
          assert.ok(Math.abs(found - rate) < 1e-9, `${JSON.stringify(numbers)} ${other}: ${found}`);
        }
      }
    },
  );
}

code.run();

const traffic = suite("the playground's traffic");

traffic("has times in order and within the time shown", () => {
  for (const kind of Object.keys(TRAFFIC_KINDS) as TrafficKind[]) {
    const { bars } = initialSettings;
    const log = [{ atMs: 1, tenant: "a" }];
    for (const rate of [0.5, 100]) {
      const arrivals = arrivalsOf({ kind, seconds: 60, rate, burst: 60, bars, log, logFrom: 0 });
      assert.ok(arrivals.length > 0);
      for (const [i, { atMs }] of arrivals.entries()) {
        assert.ok(atMs >= (arrivals[i - 1]?.atMs ?? 0) && atMs < 60_000);
      }
    }
  }
});

traffic("a drawn bar is so many requests in its part of the time", () => {
  const bars = [3, 0, 2];
  const arrivals = arrivalsOf({
    kind: "drawn",
    seconds: 4,
    rate: 1,
    burst: 1,
    bars,
    log: [],
    logFrom: 0,
  });
  assert.equal(
    arrivals.map(({ atMs }) => Math.floor(atMs / 100)),
    [0, 0, 0, 2, 2],
  );
});

traffic("reads access logs: combined, ISO times and JSON lines", () => {
  const combined = [
    '192.0.2.1 - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 5',
    '192.0.2.2 - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 5',
    "not a line of a log",
    '192.0.2.1 - - [10/Oct/2026:13:55:38 +0200] "GET / HTTP/1.1" 200 5',
  ];
  assert.equal(readAccessLog(combined.join("\n")), {
    arrivals: [
      { atMs: 0, tenant: "192.0.2.1" },
      { atMs: 500, tenant: "192.0.2.2" },
      { atMs: 2000, tenant: "192.0.2.1" },
    ],
    firstMs: Date.UTC(2026, 9, 10, 11, 55, 36),
    seconds: 3,
    skipped: 1,
  });
  const json = '{"time":"2026-10-10T11:55:36.250Z"}\r\n{"time":"2026-10-10T11:55:36.500Z"}';
  assert.equal(
    readAccessLog(json).arrivals.map(({ atMs }) => atMs),
    [0, 250],
  );
  // a fraction of 0 is a fraction: replay does not spread these, either
  const exact = '{"time":"2026-10-10T11:55:36.000Z"}\n{"time":"2026-10-10T11:55:36.000Z"}';
  assert.equal(
    readAccessLog(exact).arrivals.map(({ atMs }) => atMs),
    [0, 0],
  );
  assert.equal(readAccessLog(""), { arrivals: [], firstMs: 0, seconds: 1, skipped: 0 });
});

traffic("reads a log of 20 000 lines, and shows the part that begins at a second of it", () => {
  const lines = Array.from({ length: 20_000 }, (_, i) => {
    const time = new Date(Date.UTC(2026, 9, 10) + Math.floor(i / 5) * 1000).toISOString();
    return `192.0.2.${i % 7} ${time.slice(0, 19)}Z`;
  });
  const { arrivals: log, seconds, skipped } = readAccessLog(lines.join("\n"));
  assert.equal([log.length, seconds, skipped], [20_000, 4000, 0]);
  const shown = { kind: "log", seconds: 2, rate: 1, burst: 1, bars: [], log } as const;
  assert.equal(
    arrivalsOf({ ...shown, logFrom: 3000 }).map(({ atMs }) => atMs),
    [0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800],
  );
  assert.is(arrivalsOf({ ...shown, logFrom: 3999 }).length, 5);
});

traffic("reads JSON lines with Unix times and the fields of Caddy, nginx and Traefik", () => {
  const lines = [
    '{"level":"info","ts":1791633336.25,"request":{"remote_ip":"192.0.2.1","uri":"/"}}',
    '{"msec":"1791633336.500","remote_addr":"192.0.2.2"}',
    '{"time":1791633337250,"ClientHost":"2001:db8::1"}',
  ];
  assert.equal(readAccessLog(lines.join("\n")).arrivals, [
    { atMs: 0, tenant: "192.0.2.1" },
    { atMs: 250, tenant: "192.0.2.2" },
    { atMs: 1000, tenant: "2001:db8::1" },
  ]);
});

traffic("callers beyond the busiest share a colour", () => {
  const line = (caller: number) => `c${caller} 2026-10-10T11:55:36Z`;
  const lines = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7].map(line);
  const tenants = new Set(readAccessLog(lines.join("\n")).arrivals.map(({ tenant }) => tenant));
  assert.equal([...tenants].sort(), ["c1", "c2", "c3", "c4", "c5", "others"]);
});

traffic.run();
