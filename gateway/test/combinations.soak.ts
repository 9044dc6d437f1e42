// The test of combined rules, with a thousand requests in flight.
process.env.REFUSED_IN_FLIGHT ??= "1000";
await import("./combinations.test.ts");
