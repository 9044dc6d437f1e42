export type { PacedAddOptions } from "./job-heap.ts";
export { type PacedJob, PacedQueue, type PacedQueueOptions } from "./paced-queue.ts";
