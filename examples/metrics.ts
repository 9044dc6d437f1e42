/**
 * A service watches two limiters: one in this process, which makes some callers wait and refuses others, and one on a Redis
 * that is killed and restarted. The same numbers go to Prometheus and to OpenTelemetry.
 */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { metrics } from "@opentelemetry/api";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { Redis } from "ioredis";
import colors from "picocolors";
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { type Counted, diagnostics, RateLimiter } from "smooth-limiter";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { startRedis } from "../scripts/redis/server.ts";

/** Passes all events to a registry of prom-client. */
function watchByPrometheus(limiters: Readonly<Record<string, Counted>>): Registry {
  const registry = new Registry();
  const common = { labelNames: ["limiter"], registers: [registry] };

  const waits = new Histogram({ ...common, name: "limiter_wait_seconds", help: "Waits" });
  diagnostics.wait.subscribe(({ limiter, waitMs }) => waits.observe({ limiter }, waitMs / 1000));

  const refused = new Counter({
    ...common,
    name: "limiter_refused_total",
    help: "Calls that were refused",
    labelNames: ["limiter", "reason"],
  });
  diagnostics.refused.subscribe(({ limiter, reason }) => refused.inc({ limiter, reason }));

  const up = new Gauge({ ...common, name: "limiter_store_up", help: "0 while Redis is away" });
  const meanwhile = new Counter({
    ...common,
    name: "limiter_granted_in_outages_total",
    help: "Permits granted while Redis was away",
  });
  diagnostics.unavailable.subscribe(({ limiter }) => up.set({ limiter }, 0));
  diagnostics.recovered.subscribe(({ limiter, granted }) => {
    up.set({ limiter }, 1);
    meanwhile.inc({ limiter }, granted);
  });

  new Counter({
    ...common,
    name: "limiter_granted_total",
    help: "Calls that got their permits",
    collect() {
      this.reset();
      for (const [limiter, { stats }] of Object.entries(limiters)) {
        this.inc({ limiter }, stats.granted);
      }
    },
  });
  return registry;
}

/** Passes all events to the OpenTelemetry SDK that the application has set up. */
function watchByOpenTelemetry(limiters: Readonly<Record<string, Counted>>): void {
  const meter = metrics.getMeter("smooth-limiter");

  const waits = meter.createHistogram("limiter.wait.duration", { unit: "s" });
  diagnostics.wait.subscribe(({ limiter, waitMs }) => waits.record(waitMs / 1000, { limiter }));

  const refused = meter.createCounter("limiter.refused");
  diagnostics.refused.subscribe(({ limiter, reason }) => refused.add(1, { limiter, reason }));

  const outages = meter.createHistogram("limiter.outage.duration", { unit: "s" });
  diagnostics.recovered.subscribe(({ limiter, durationMs }) =>
    outages.record(durationMs / 1000, { limiter }),
  );

  meter.createObservableCounter("limiter.granted").addCallback((result) => {
    for (const [limiter, { stats }] of Object.entries(limiters)) {
      result.observe(stats.granted, { limiter });
    }
  });
}

const tell = (what: string) => console.log(`  ${what}`);

// an application would export the metrics every minute; here they stay in memory
const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 1e6 });
const provider = new MeterProvider({ readers: [reader] });
metrics.setGlobalMeterProvider(provider);

const server = await startRedis();
const redis = new Redis(server.url);
redis.on("error", () => {}); // the limiter reports outages itself

const mails = RateLimiter.create(20, { name: "mails", burstSeconds: 0 });
const api = RedisRateLimiter.create(redis, "api", 50, {
  ...{ timeoutMs: 100, whenUnavailable: "local", instances: 2 },
});
const limiters = { mails, api };
const registry = watchByPrometheus(limiters);
watchByOpenTelemetry(limiters);
diagnostics.unavailable.subscribe(({ limiter, cause }) => {
  tell(colors.red(`${limiter}: Redis is away (${(cause as Error).message})`));
});
diagnostics.recovered.subscribe(({ limiter, durationMs, granted }) => {
  tell(colors.green(`${limiter}: Redis was away for ${Math.round(durationMs)} ms`));
  tell(`     ${granted} permits were granted during that time`);
});

console.log("Mails, 20 a second: 5 wait their turn, 3 cannot wait\n");
const sent = Array.from({ length: 6 }, () => mails.acquire());
for (let i = 0; i < 3; i++) assert.equal(mails.tryAcquire(), false);
tell(`${mails.stats.waiting} wait, ${mails.stats.refused} were refused`);
assert.equal(mails.stats.waiting, 5);
await Promise.all(sent);

console.log("\nAn API, 50 a second for all processes: Redis is killed meanwhile\n");
await api.acquire();
await server.kill9();
const end = performance.now() + 1000;
while (performance.now() < end) {
  if (api.state === "unavailable" && performance.now() > end - 600 && !server.running) {
    await server.restart();
  }
  await api.acquire();
}
while (api.state === "unavailable") await sleep(10);
await sleep(10);

const page = await registry.metrics();
console.log("\nThe metrics in Prometheus:\n");
for (const line of page.split("\n")) {
  if (/^limiter_\w+(_total|_count|_up)\{/.test(line)) tell(line);
}

await provider.forceFlush();
console.log("\nThe metrics in OpenTelemetry:\n");
const collected = exporter
  .getMetrics()
  .flatMap(({ scopeMetrics }) => scopeMetrics)
  .flatMap((scope) => scope.metrics)
  .flatMap(({ descriptor, dataPoints }) =>
    dataPoints.map(({ attributes, value }) => ({
      name: `${descriptor.name} of ${attributes.limiter}`,
      value: typeof value === "object" ? Number((value as { count?: number }).count) : value,
    })),
  );
for (const { name, value } of collected) tell(`${name}: ${value}`);

const { granted, failed, outages, grantedInOutages } = api.stats;
const inPrometheus = (series: string) =>
  Number(
    page
      .split("\n")
      .find((line) => line.startsWith(`${series} `))
      ?.split(" ")[1],
  );
const inOpenTelemetry = (name: string) => collected.find((one) => one.name === name)?.value;

assert.equal(inPrometheus('limiter_wait_seconds_count{limiter="mails"}'), 5);
assert.equal(inOpenTelemetry("limiter.wait.duration of mails"), 5);
assert.equal(inPrometheus('limiter_refused_total{limiter="mails",reason="too-long"}'), 3);
assert.equal(inOpenTelemetry("limiter.refused of mails"), 3);
assert.equal(inPrometheus('limiter_granted_total{limiter="mails"}'), 6);
assert.equal(inPrometheus('limiter_granted_total{limiter="api"}'), granted);
assert.equal(inOpenTelemetry("limiter.granted of api"), granted);

assert.equal(failed, 0, "no call failed during the outage");
assert.ok(outages >= 1);
assert.equal(inOpenTelemetry("limiter.outage.duration of api"), outages);
assert.equal(inPrometheus('limiter_store_up{limiter="api"}'), 1);
assert.ok(grantedInOutages > 0);
assert.equal(inPrometheus('limiter_granted_in_outages_total{limiter="api"}'), grantedInOutages);

await provider.shutdown();
redis.disconnect();
await server.stop();
