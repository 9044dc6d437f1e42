/** `smooth-limiter/llm`: limits calls whose size is only known when they are over. */
export { type EstimateOptions, withEstimate } from "./with-estimate.ts";
