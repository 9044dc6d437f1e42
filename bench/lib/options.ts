/** `--short`: the version for CI, a few seconds a file. `--strict`: a missed target fails the process. */
export const short = process.argv.includes("--short");
export const strict = process.argv.includes("--strict");
