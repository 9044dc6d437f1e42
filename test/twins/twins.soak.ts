// The twin test with 10 400 histories of each algorithm.
process.env.TWINS_BATCHES ??= "52";
await import("./twins.test.ts");
