export { type Paced, type PaceOptions, pace } from "./pace.ts";
