/**
 * Two limiters are watched by Prometheus and by OpenTelemetry: one in this process, which makes some callers wait and refuses
 * others, and one on a Redis that is killed and restarted.
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
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { type Counted, diagnostics, RateLimiter } from "smooth-limiter";
import { RedisRateLimiter } from "smooth-limiter/redis";
import { startRedis } from "../test/support/redis/server.ts";

type Limiters = Readonly<Record<string, Counted>>;

/** Passes all events to a registry of prom-client. */
function watchByPrometheus(limiters: Limiters): Registry {
  const registry = new Registry();
  const common = {
    help: "see docs/diagnostics.md",
    labelNames: ["limiter"],
    registers: [registry],
  };

  const waits = new Histogram({ ...common, name: "limiter_wait_seconds" });
  diagnostics.wait.subscribe(({ limiter, waitMs }) => waits.observe({ limiter }, waitMs / 1000));

  const labelNames = ["limiter", "reason"];
  const refused = new Counter({ ...common, name: "limiter_refused_total", labelNames });
  diagnostics.refused.subscribe(({ limiter, reason }) => refused.inc({ limiter, reason }));

  const up = new Gauge({ ...common, name: "limiter_store_up" });
  const meanwhile = new Counter({ ...common, name: "limiter_granted_in_outages_total" });
  diagnostics.unavailable.subscribe(({ limiter }) => up.set({ limiter }, 0));
  diagnostics.recovered.subscribe(({ limiter, granted }) => {
    up.set({ limiter }, 1);
    meanwhile.inc({ limiter }, granted);
  });

  new Counter({
    ...common,
    name: "limiter_granted_total",
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
function watchByOpenTelemetry(limiters: Limiters): void {
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

// an application would export the metrics every minute; here they stay in memory
const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 1e6 });
const provider = new MeterProvider({ readers: [reader] });
metrics.setGlobalMeterProvider(provider);

const server = await startRedis();
const redis = new Redis(server.url);
redis.on("error", () => {}); // the limiter reports outages itself

const mails = RateLimiter.create(20, { name: "mails", burstSeconds: 0 });
const options = { timeoutMs: 100, whenUnavailable: "local", instances: 2 } as const;
const api = RedisRateLimiter.create(redis, "api", 50, options);
const registry = watchByPrometheus({ mails, api });
watchByOpenTelemetry({ mails, api });
diagnostics.unavailable.subscribe(({ limiter, cause }) =>
  console.log(`${limiter}: Redis is away (${(cause as Error).message})`),
);
diagnostics.recovered.subscribe(({ limiter, durationMs, granted }) =>
  console.log(`${limiter}: back after ${Math.round(durationMs)} ms; granted meanwhile: ${granted}`),
);

// 20 mails a second: 5 wait, 3 cannot wait
const sent = Array.from({ length: 6 }, () => mails.acquire());
for (let i = 0; i < 3; i++) mails.tryAcquire();
await Promise.all(sent);

await api.acquire();
await server.kill9();
for (let i = 0; i < 20; i++) await api.acquire();
await server.restart();
while (api.stats.outages === 0 || api.state === "unavailable") await sleep(10);
await sleep(10);

const page = await registry.metrics();
const inPrometheus = page
  .split("\n")
  .filter((line) => /^limiter_\w+(_total|_count|_up)\{/.test(line));
console.log(`\nPrometheus:\n  ${inPrometheus.join("\n  ")}`);

await provider.forceFlush();
const inOpenTelemetry = exporter
  .getMetrics()
  .flatMap(({ scopeMetrics }) => scopeMetrics)
  .flatMap((scope) => scope.metrics)
  .flatMap(({ descriptor, dataPoints }) =>
    dataPoints.map(({ attributes, value }) => {
      const count = typeof value === "object" ? (value as { count?: number }).count : value;
      return `${descriptor.name} of ${attributes.limiter}: ${count}`;
    }),
  );
console.log(`\nOpenTelemetry:\n  ${inOpenTelemetry.join("\n  ")}`);

const { granted, failed, outages, grantedInOutages } = api.stats;
assert.equal(failed, 0, "no call failed during the outage");
assert.ok(outages >= 1 && grantedInOutages > 0);
for (const line of [
  'limiter_wait_seconds_count{limiter="mails"} 5',
  'limiter_refused_total{limiter="mails",reason="too-long"} 3',
  'limiter_granted_total{limiter="mails"} 6',
  `limiter_granted_total{limiter="api"} ${granted}`,
  'limiter_store_up{limiter="api"} 1',
  `limiter_granted_in_outages_total{limiter="api"} ${grantedInOutages}`,
]) {
  assert.ok(inPrometheus.includes(line), line);
}
for (const line of [
  "limiter.wait.duration of mails: 5",
  "limiter.refused of mails: 3",
  `limiter.granted of api: ${granted}`,
  `limiter.outage.duration of api: ${outages}`,
]) {
  assert.ok(inOpenTelemetry.includes(line), line);
}

await provider.shutdown();
redis.disconnect();
