// The twin test of combinations, with fresh histories.
process.env.COMBINED_BATCHES ??= "60";
process.env.TWINS_SEED ??= String(Math.floor(Math.random() * 2 ** 31));
await import("./combined.test.ts");
