export { type PaceOptions, pace } from "./pace.ts";
