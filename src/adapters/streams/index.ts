export type { PaceOptions, Weigh, WeighedOptions } from "./options.ts";
export { paced } from "./paced.ts";
export { throttle } from "./throttle.ts";
