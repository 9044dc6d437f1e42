/** For limiters on a real server: a busy machine may not answer within the default of one second. */
export const PATIENT = { timeoutMs: 30_000 };
