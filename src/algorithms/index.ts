/** The registration: every algorithm, one line each. The twin, store and limiter suites run over it. */
import type { Algorithm } from "./algorithm.ts";
import { smooth } from "./smooth/smooth.ts";

export const algorithms: readonly Algorithm[] = [smooth];
