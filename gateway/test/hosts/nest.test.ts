import "reflect-metadata";
import type { AddressInfo } from "node:net";
import {
  type ArgumentsHost,
  Catch,
  Controller,
  Get,
  HttpException,
  type INestApplication,
  Module,
} from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { ExpressAdapter } from "@nestjs/platform-express";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import { gcra, KeyedLimiter } from "smooth-limiter";
import * as assert from "uvu/assert";
import { suite } from "../../../test/support/suite.ts";
import { createGateway, type RateLimited } from "../../src/index.ts";
import {
  RateLimit,
  RateLimitModule,
  type RateLimitOptions,
  SkipRateLimit,
} from "../../src/nest.ts";

const ADAPTERS = {
  Express: () => new ExpressAdapter(),
  Fastify: () => new FastifyAdapter(),
};

const perHour = (limit: number) => KeyedLimiter.create(gcra({ limit, periodMs: 3_600_000 }));

class Shop {
  list(request: RateLimited): string {
    return `left ${request.rateLimit?.remaining}`;
  }

  search(): string {
    return "found";
  }

  health(): string {
    return "fine";
  }
}

interface Served {
  readonly app: INestApplication;
  ask(path: string, user?: string): Promise<Response>;
}

type Options = Parameters<typeof RateLimitModule.forRoot>[0];

/** Starts an application; decorators are applied as the compiler does it. */
async function serve(
  name: keyof typeof ADAPTERS,
  options: Options,
  prepare: (app: INestApplication) => void = () => {},
  isSkipped = false,
): Promise<Served> {
  class Own extends Shop {}
  const decorate = (method: keyof Shop, ...decorators: MethodDecorator[]) => {
    const own = Object.getOwnPropertyDescriptor(Shop.prototype, method) as PropertyDescriptor;
    const handler = own.value as (...args: unknown[]) => unknown;
    const value = function (this: unknown, ...args: unknown[]) {
      return handler.apply(this, args);
    };
    Object.defineProperty(Own.prototype, method, { ...own, value });
    const descriptor = Object.getOwnPropertyDescriptor(Own.prototype, method);
    for (const apply of decorators) apply(Own.prototype, method, descriptor as PropertyDescriptor);
  };
  decorate("list", Get());
  decorate(
    "search",
    Get("search"),
    RateLimit({ limiter: perHour(1), key: ({ headers }) => headers["x-user"] }),
  );
  decorate("health", Get("health"), SkipRateLimit());
  const { Req } = await import("@nestjs/common");
  Req()(Own.prototype, "list", 0);
  Controller()(Own);
  if (isSkipped) SkipRateLimit()(Own);
  class App {}
  Module({ imports: [RateLimitModule.forRoot(options)], controllers: [Own] })(App);
  const app = await NestFactory.create(App, ADAPTERS[name](), {
    logger: false,
    abortOnError: false,
  });
  prepare(app);
  await app.listen(0, "127.0.0.1");
  const { port } = app.getHttpServer().address() as AddressInfo;
  const ask = (path: string, user = "ann") =>
    fetch(`http://127.0.0.1:${port}${path}`, { headers: { "x-user": user } });
  return { app, ask };
}

for (const name of ["Express", "Fastify"] as const) {
  const test = suite(`Nest on ${name}`);

  test("the limit of the module, of a route, and none", async () => {
    const { app, ask } = await serve(name, { limiter: perHour(2) });
    const passed = await ask("/");
    assert.equal([passed.status, await passed.text()], [200, "left 1"]);
    assert.match(passed.headers.get("ratelimit") ?? "", /^"default";r=1/);
    assert.is((await ask("/")).status, 200);
    const refused = await ask("/");
    assert.is(refused.status, 429);
    assert.match(refused.headers.get("content-type") ?? "", /^application\/json/);
    assert.ok(Number(refused.headers.get("retry-after")) > 1000);
    const problem = (await refused.json()) as Record<string, unknown>;
    assert.equal([problem.title, problem["violated-policies"]], ["Too many requests", ["default"]]);
    const statuses = [];
    for (const user of ["ann", "ann", "bob"]) statuses.push((await ask("/search", user)).status);
    assert.equal(statuses, [200, 429, 200]);
    for (let i = 0; i < 3; i++) assert.is(await (await ask("/health")).text(), "fine");
    await app.close();
  });

  test("rules of a gateway; an exception filter sees a refusal", async () => {
    const gateway = await createGateway({
      rules: { url: "/", rules: [{ actor: "device", unit: "hour", rpu: 1, name: "all" }] },
    });
    const caught: unknown[] = [];
    class Filter {
      catch(error: HttpException, host: ArgumentsHost): void {
        caught.push(error.getStatus());
        const reply = host.switchToHttp().getResponse();
        reply.status(error.getStatus()).send("mine");
      }
    }
    Catch(HttpException)(Filter);
    const { app, ask } = await serve(name, { gateway }, (made) => {
      made.useGlobalFilters(new Filter());
    });
    assert.is((await ask("/")).status, 200);
    const refused = await ask("/");
    assert.equal([refused.status, await refused.text(), caught], [429, "mine", [429]]);
    await app.close();
    await gateway.close();
  });

  test("a route with a limit in a controller that is left out has its limit", async () => {
    const { app, ask } = await serve(name, { limiter: perHour(1) }, () => {}, true);
    const statuses = [];
    for (const path of ["/", "/", "/search", "/search"]) statuses.push((await ask(path)).status);
    assert.equal(statuses, [200, 200, 200, 429]);
    await app.close();
  });

  test("a text as the application's own answer; bad options fail at the start", async () => {
    const answer = () => ({ status: 503, headers: { "x-why": "busy" }, body: "come back" });
    const { app, ask } = await serve(name, { limiter: perHour(1), answer });
    await ask("/");
    const refused = await ask("/");
    assert.equal([refused.status, refused.headers.get("x-why")], [503, "busy"]);
    assert.match(await refused.text(), /come back/);
    await app.close();
    const wrong = await serve(name, { limiter: 5 as never }).catch(String);
    assert.match(wrong as string, /limiter must be a limiter/);
    assert.throws(() => RateLimit({ limiter: 5 as never })(Shop), /limiter must be a limiter/);
    const max = { limiter: perHour(1), max: 5 } as object as RateLimitOptions;
    assert.throws(() => RateLimit(max)(Shop), /options has no "max"/);
  });

  test.run();
}
