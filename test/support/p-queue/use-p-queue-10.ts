import { register } from "node:module";

// Loaded with --import: from here on "p-queue" is p-queue 10.
const hook = `export const resolve = (name, context, next) =>
  next(name === "p-queue" ? "p-queue-10" : name, context);`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);
