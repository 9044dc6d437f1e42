export type { OnFullQueue } from "./full-queue.ts";
export type { PacedAddOptions, PacedJob } from "./job.ts";
export { PacedQueue, type PacedQueueOptions } from "./paced-queue.ts";
