/** `smooth-limiter/llm`: calls whose size is known afterwards only. */
export { type EstimateOptions, withEstimate } from "./with-estimate.ts";
