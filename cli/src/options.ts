/** Parsers for the values of options and arguments. */
import { InvalidArgumentError, Option } from "commander";

/** An option that may be repeated: its values are collected. */
export function repeatable(flags: string, description: string): Option {
  return new Option(flags, `${description}; may be repeated`)
    .argParser((value, before: readonly string[]) => [...before, value])
    .default([], "none");
}

export function wholeNumber(least: number, most: number): (value: string) => number {
  const words = `a whole number, ${least} to ${most}`;
  return parser(words, (number, value) => {
    return /^\d{1,9}$/.test(value) && number >= least && number <= most;
  });
}

export const seconds = parser(
  "a number of seconds, 0 to 3600",
  (number) => number >= 0 && number <= 3600,
);

export const positive = parser("a number above 0", isPositive);

export const zeroOrMore = parser("0 or a number above 0", (number, value) => {
  return value === "0" || isPositive(number);
});

function isPositive(number: number): boolean {
  return number > 0 && number < Infinity;
}

function parser(
  words: string,
  isAllowed: (number: number, value: string) => boolean,
): (value: string) => number {
  return (value) => {
    const number = value.trim() === "" ? Number.NaN : Number(value);
    if (isAllowed(number, value)) return number;
    throw new InvalidArgumentError(`It must be ${words}.`);
  };
}
