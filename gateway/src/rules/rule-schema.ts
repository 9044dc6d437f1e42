/** The schema of one rule: of requests per time, of connections, or of the bytes of responses. */
import * as z from "zod";
import { type Block, isTimeZone, UNITS, type Unit } from "./rule.ts";
import { actor, cost, METHOD_NAMES, type Names } from "./schema-fields.ts";
import {
  atLeastZero,
  byValue,
  choice,
  duration,
  either,
  list,
  number,
  object,
  oneOf,
  refuse,
  says,
  size,
  text,
  word,
} from "./schema-parts.ts";
import { vocabulary } from "./words.ts";

/** A rule's name: it is used in header fields and keys. */
const NAME = /^[!-~](?:[ -~]{0,198}[!-~])?$/;
const A_ZONE = "a time zone such as Europe/Berlin or UTC";

const numbers = {
  rpu: atLeastZero("requests per unit, a number, 0 or more: 0 refuses all"),
  unit: choice(...(Object.keys(UNITS) as Unit[])),
  units: number("how many units, a number above 0").optional(),
  burst: atLeastZero(
    "a number, 0 or more",
    "a number, 0 or more: tokens kept, or requests that may wait",
  ).optional(),
  slack: atLeastZero(
    "a number, 0 or more: unused permits that a leaky bucket makes up for",
  ).optional(),
  buckets: atLeastZero("a whole number, 1 to 10000: the parts of a sliding window").optional(),
  align: choice("epoch", "first").optional(),
  timeZone: z
    .string(says(A_ZONE))
    .refine(isTimeZone, says(A_ZONE))
    .meta({ description: A_ZONE })
    .optional(),
  nodelay: z
    .union(
      [z.literal(true), z.number().min(0)],
      says("true, or a number, 0 or more: how many of the burst go at once"),
    )
    .optional(),
  with: z
    .record(z.string(), z.unknown(), says("a map: what a registered algorithm asks for"))
    .optional(),
};

/** What rules of all kinds have. */
const common = {
  name: text("a name: printable ASCII, at most 200 characters", NAME).optional(),
  whenActorMissing: choice("device", "shared", "skip").optional(),
  methods: list(word(METHOD_NAMES), "a list of HTTP methods").optional(),
  exempt: z
    .array(
      z.string(says("a text: a value of the actor")),
      says("a list of texts: values of the actor"),
    )
    .optional(),
};

const scope = choice("local", "global").default("local");
const mode = choice("enforce", "shadow").default("enforce");
const A_REPORT = "true or false: whether responses mention the rule";
const report = z.boolean(says(A_REPORT)).meta({ description: A_REPORT }).default(true);

const STATUSES = "a list of statuses, whole numbers from 100 to 599";

/** Which requests count. */
function count() {
  const one = z.int(says(STATUSES)).min(100, says(STATUSES)).max(599, says(STATUSES));
  const status = z.array(one, says(STATUSES));
  const listed = object({ status: status.min(1, says(STATUSES)).meta({ description: STATUSES }) });
  return either(choice("all", "failures", "successes"), listed);
}

/** A block: a duration, or one that grows. */
function block() {
  const grows = object({
    for: duration(),
    times: z
      .number(says("a number, 1 or more"))
      .min(1, says("a number, 1 or more"))
      .max(1000, says("a number, 1 to 1000"))
      .meta({ description: "how many times as long as the last one each block lasts" })
      .default(2),
    most: duration(),
  }).transform((read, context): Block => {
    const { for: forMs, times, most: mostMs } = read;
    if (mostMs >= forMs) return { forMs, times, mostMs };
    refuse(context, "a duration of at least `for`", read, ["most"]);
    return z.NEVER;
  });
  const equal = duration().transform((forMs): Block => ({ forMs, times: 1, mostMs: forMs }));
  return either(equal, grows);
}

function requestSchema(names: Names) {
  const { algorithms, costs } = names;
  const algorithmWords = vocabulary(
    Object.keys(algorithms),
    (name) => algorithms[name]?.aliases ?? [],
  );
  return object(
    {
      ...common,
      actor: actor(names),
      ...numbers,
      units: numbers.units.default(1),
      algo: word(algorithmWords, true).optional(),
      scope,
      mode,
      report,
      cost: cost(costs).default({ cost: 1, costs: {}, costBy: undefined }),
      count: count().default("all"),
      block: block().optional(),
      limitKey: text("a Redis key in which operators keep rpu", /^.{1,512}$/s).optional(),
      overrides: byValue(object(numbers).partial()),
    },
    "; or, in rules of other kinds, connections or bytesPerSecond",
  );
}

const HOW_MANY = "how many requests at once, a whole number, 1 or more";
const connections = z.int(says(HOW_MANY)).min(1, says(HOW_MANY)).meta({ description: HOW_MANY });

function connectionSchema(names: Names) {
  return object({
    ...common,
    actor: actor(names),
    connections,
    maxAge: duration().optional(),
    scope,
    mode,
    report,
    overrides: byValue(object({ connections })),
  });
}

const bytesPerSecond = size("bytes per second", false);
const afterBytes = size("bytes that are sent at once", true);

function rateSchema(names: Names) {
  return object({
    ...common,
    actor: actor(names).optional(),
    bytesPerSecond,
    afterBytes: afterBytes.default(0),
    overrides: byValue(object({ bytesPerSecond, afterBytes }).partial()),
  });
}

type RequestSchema = ReturnType<typeof requestSchema>;
type ConnectionSchema = ReturnType<typeof connectionSchema>;
type RateSchema = ReturnType<typeof rateSchema>;

/** A rule as it is read, with the names in one spelling. */
export type ReadRule = z.output<RequestSchema> | z.output<ConnectionSchema> | z.output<RateSchema>;
type WrittenRule = z.input<RequestSchema> | z.input<ConnectionSchema> | z.input<RateSchema>;

/** The schema of one rule, with the names that may be used. Its fields say of which kind it is. */
export function ruleSchema(names: Names): z.ZodType<ReadRule, WrittenRule> {
  const requests = requestSchema(names);
  const connections = connectionSchema(names);
  const rates = rateSchema(names);
  const kindOf = (found: object) => {
    if ("connections" in found) return connections;
    return "bytesPerSecond" in found || "afterBytes" in found ? rates : requests;
  };
  return oneOf<ReadRule, WrittenRule>([requests, connections, rates], (found) =>
    kindOf(Object(found)),
  );
}
