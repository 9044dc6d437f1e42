// The attacks by request target with 80 000 random targets for each way to read one, other ones in each run.
// TARGET_SEED repeats a run.
process.env.TARGET_SEEDS ??= "40";
process.env.TARGET_SEED ??= String(Date.now() % 2 ** 32);
console.log(`TARGET_SEED=${process.env.TARGET_SEED}`);
await import("./targets.test.ts");
