import { decodeState, UNIT } from "../../../src/stores/state/bytes.ts";

/** Returns the state as readable text, for messages. */
export function describeState(bytes: Uint8Array | null | undefined): string {
  if (!bytes) return "nothing";
  const { base, last, batchIds, numbers, settings, others, doubles } = decodeState(bytes);
  const fields = doubles.map((double) => (Object.is(double, -0) ? "-0" : double));
  const text = JSON.stringify([[numbers, ...settings].join("\t"), ...others].join("\v"));
  const callers = batchIds.map(({ caller, number }) => `${caller} ${number}`);
  return `base ${base / UNIT}, last ${last}, [${callers}], ${text}, ${fields.join(" ")}`;
}
