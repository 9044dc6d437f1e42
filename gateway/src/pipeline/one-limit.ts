import type { Checker } from "../answers/checker.ts";
import type { MaybePromise } from "../ground/maybe-promise.ts";
import type { GatewayRequest, Report } from "../request.ts";
import type { CountedRule, Verdict } from "../verdict.ts";
import type { Stages } from "./limit.ts";
import { Pipeline } from "./pipeline.ts";

/** A pipeline whose limits are the same for every request: a limit in one call. */
export class OneLimit implements Checker {
  readonly #pipeline = new Pipeline();
  readonly #stages: Stages;

  constructor(stages: Partial<Stages>) {
    this.#stages = { slots: [], permits: [], paces: [], ...stages };
  }

  check(request: GatewayRequest, report?: Report): MaybePromise<Verdict<CountedRule>> {
    return this.#pipeline.check<CountedRule>(this.#stages, { request, report });
  }
}
