/** A guard for NestJS on Express, with decorators. Copy it into your application. */
import {
  type CanActivate,
  type ExecutionContext,
  HttpException,
  HttpStatus,
  SetMetadata,
} from "@nestjs/common";
import { Reflector } from "@nestjs/core";
import type { Request, Response } from "express";
import type { Limiter } from "smooth-limiter";
import { expressLimit, type HostLimitOptions, type LimiterByKey } from "smooth-limiter-gateway";

export interface RateLimitOptions extends HostLimitOptions<Request> {
  readonly limiter: Limiter | LimiterByKey;
}

type Middleware = (req: Request, res: Response, next: (error?: unknown) => void) => void;

const SKIP = "smooth-limiter:skip";

/** Gives a controller or a route a limit of its own: `@RateLimit({ limiter, key })`. */
export const RateLimit = Reflector.createDecorator<RateLimitOptions>();

/** Leaves a controller or a route out: `@SkipRateLimit()`. */
export const SkipRateLimit = () => SetMetadata(SKIP, true);

export class RateLimitGuard implements CanActivate {
  readonly #reflector: Reflector;
  readonly #usual: RateLimitOptions | undefined;
  readonly #limits = new WeakMap<RateLimitOptions, Middleware>();

  /** @param usual the limit of routes without a decorator; absent: they have none */
  constructor(reflector: Reflector, usual?: RateLimitOptions) {
    this.#reflector = reflector;
    this.#usual = usual;
  }

  canActivate(context: ExecutionContext): true | Promise<true> {
    const places = [context.getHandler(), context.getClass()];
    const options = this.#reflector.getAllAndOverride(RateLimit, places) ?? this.#usual;
    const isSkipped = this.#reflector.getAllAndOverride<boolean>(SKIP, places);
    if (isSkipped || options === undefined) return true;
    const http = context.switchToHttp();
    const res = http.getResponse<Response>();
    return new Promise((resolve, reject) => {
      // a refusal has been sent then: the error ends the request for interceptors and filters
      const refused = () =>
        reject(new HttpException("Too many requests", HttpStatus.TOO_MANY_REQUESTS));
      res.once("close", refused);
      this.#limitOf(options)(http.getRequest<Request>(), res, (error) => {
        res.off("close", refused);
        if (error === undefined) resolve(true);
        else reject(error);
      });
    });
  }

  /** One for each decorator, so that routes of one controller share its count. */
  #limitOf(options: RateLimitOptions): Middleware {
    let limit = this.#limits.get(options);
    if (limit === undefined) {
      const { limiter, ...rest } = options;
      limit = expressLimit(limiter, rest);
      this.#limits.set(options, limit);
    }
    return limit;
  }
}
