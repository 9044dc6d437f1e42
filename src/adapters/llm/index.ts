/** `smooth-limiter/llm`: limits calls of a size that is only known when they are over. */
export { type EstimateOptions, withEstimate } from "./with-estimate.ts";
