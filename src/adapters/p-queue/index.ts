export type { OnFullQueue } from "./full-queue.ts";
export type { PacedAddOptions, PacedJob } from "./job-heap.ts";
export { PacedQueue, type PacedQueueOptions } from "./paced-queue.ts";
