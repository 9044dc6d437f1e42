/**
 * NestJS: each client may ask 3 times a minute, search once a minute for each user, and the health
 * check as often as it likes.
 */
import "reflect-metadata";
import type { AddressInfo } from "node:net";
import { Controller, Get, Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import type { Request } from "express";
import { gcra, KeyedLimiter } from "smooth-limiter";
import { RateLimit, RateLimitModule, SkipRateLimit } from "smooth-limiter-gateway/nest";

const perMinute = (limit: number) => KeyedLimiter.create(gcra({ limit, periodMs: 60_000 }));

class Shop {
  list(): string {
    return "cats";
  }

  search(): string {
    return "found";
  }

  health(): string {
    return "fine";
  }
}

// With "experimentalDecorators" you write these before the methods, as in every Nest application:
//   @Get("search") @RateLimit({ limiter: perMinute(1), key: (req) => req.get("x-user") }) search() { … }
decorate("list", Get());
decorate(
  "search",
  Get("search"),
  RateLimit({ limiter: perMinute(1), key: (req: Request) => req.get("x-user") }),
);
decorate("health", Get("health"), SkipRateLimit());
Controller()(Shop);

class App {}
Module({
  imports: [RateLimitModule.forRoot({ limiter: perMinute(3) })],
  controllers: [Shop],
})(App);

const app = await NestFactory.create(App, { logger: false });
const server = await app.listen(0);
const { port } = server.address() as AddressInfo;

async function ask(path: string, user = "ann"): Promise<string> {
  const headers = { "x-user": user };
  const response = await fetch(`http://localhost:${port}${path}`, { headers });
  return `${response.status} ${(await response.text()).slice(0, 5)}`;
}

for (let i = 0; i < 4; i++) console.log("list", await ask("/"));
console.log("search", await ask("/search"), await ask("/search"), await ask("/search", "bob"));
for (let i = 0; i < 5; i++) await ask("/health");
console.log("health", await ask("/health"));
await app.close();

function decorate(method: "list" | "search" | "health", ...decorators: MethodDecorator[]): void {
  const descriptor = Object.getOwnPropertyDescriptor(Shop.prototype, method);
  for (const apply of decorators) apply(Shop.prototype, method, descriptor as PropertyDescriptor);
}
