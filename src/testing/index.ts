export { FakeClock } from "./fake-clock.ts";
export { type MemoryStore, type MemoryStoreOptions, memoryStore } from "./memory-store.ts";
