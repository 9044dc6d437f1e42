/**
 * Reads the limits that servers report, in the common dialects: `RateLimit` and `RateLimit-Policy`
 * as structured fields (the current IETF draft); draft 7's `RateLimit: limit=100, remaining=50,
 * reset=30`; `RateLimit-Remaining` and its siblings, with and without `X-`; OpenAI's
 * (`x-ratelimit-remaining-tokens`, with resets such as `6m0s`), Anthropic's
 * (`anthropic-ratelimit-tokens-remaining`, with dates) and Shopify's
 * (`x-shopify-shop-api-call-limit: 32/40`: used and limit).
 *
 * Nothing here throws: a field that cannot be read counts as absent.
 */

/** One of a server's limits, as the server saw it when it wrote the response. */
export interface ServerQuota {
  /** The server's name for it; `undefined` if it reports only one. */
  readonly name: string | undefined;
  /** How much could still be used. */
  readonly remaining: number;
  /** How much can be used in a window; undefined if not reported. */
  readonly limit: number | undefined;
  /** ms until all of it can be used again; `undefined` if not reported. */
  readonly resetMs: number | undefined;
  /** The length of a window, ms; undefined if not reported. */
  readonly windowMs: number | undefined;
  /** Whether it refills gradually until then, as in a bucket, and not all at once. */
  readonly gradual: boolean;
}

/**
 * @param headers of the response
 * @param epochMs Unix time, ms, for responses without a `Date` field
 */
export function readQuotas(headers: Headers, epochMs: number): ServerQuota[] {
  const fields = fieldsOfLimits(headers);
  if (fields.size === 0) return [];
  const now = serverTime(headers, epochMs);
  const one = structured(fields, now) ?? plain(fields, now);
  return [...one, ...named(fields, now), ...shopify(fields)];
}

type Fields = ReadonlyMap<string, string>;

/** Reads all fields once: most responses have none, and to look for each by its name takes longer. */
function fieldsOfLimits(headers: Headers): Fields {
  const fields = new Map<string, string>();
  for (const [name, value] of headers) {
    if (name.includes("limit")) fields.set(name, value);
  }
  return fields;
}

/** How long the server asks clients to wait, ms: `Retry-After` in seconds or as a date. */
export function readRetryAfterMs(headers: Headers, epochMs: number): number | undefined {
  const inMs = amount(headers.get("retry-after-ms"));
  return inMs ?? msUntil(headers.get("retry-after"), serverTime(headers, epochMs));
}

/** ms until a part of a used-up quota can be used again. */
export function comesBackMs({ resetMs, limit, gradual }: ServerQuota): number | undefined {
  return resetMs !== undefined && gradual && limit ? resetMs / limit : resetMs;
}

/** The server's own time: its dates refer to its clock, and the local clock may be wrong. */
function serverTime(headers: Headers, epochMs: number): number {
  return readDate(headers.get("date") ?? "") || epochMs;
}

/** `RateLimit: "name";r=50;t=30`, with `RateLimit-Policy: "name";q=100;w=60`. */
function structured(fields: Fields, now: number): ServerQuota[] | undefined {
  const field = fields.get("ratelimit");
  if (field === undefined) return undefined;
  const members = readList(field);
  const policyField = fields.get("ratelimit-policy");
  const policies = policyField === undefined ? [] : readList(policyField);
  const [first] = policies;
  const windowOf = (params: Params | undefined) => seconds(params?.get("w"));

  if (members.some(({ params }) => params.has("r"))) {
    return members.flatMap(({ name, params }) => {
      const policy = policies.find((each) => each.name === name)?.params;
      return quota(params.get("r"), params.get("t"), policy?.get("q"), now, {
        name,
        windowMs: windowOf(policy),
      });
    });
  }
  // draft 7 is a dictionary: each member is a name and its value
  const of = new Map(members.map(({ name, value }) => [name, value]));
  const found = quota(of.get("remaining"), of.get("reset"), of.get("limit"), now, {
    windowMs: windowOf(first?.params),
  });
  return found.length > 0 ? found : undefined;
}

function plain(fields: Fields, now: number): ServerQuota[] {
  for (const prefix of ["ratelimit", "x-ratelimit", "x-rate-limit"]) {
    const get = (what: string) => fields.get(`${prefix}-${what}`);
    // a list of policies may follow the limit
    const limit = get("limit")?.split(",")[0];
    const found = quota(get("remaining"), get("reset"), limit, now, {});
    if (found.length > 0) return found;
  }
  return [];
}

const NAMED: readonly [field: RegExp, sister: (name: string, what: string) => string][] = [
  [/^x-ratelimit-remaining-(.+)$/, (name, what) => `x-ratelimit-${what}-${name}`],
  [/^anthropic-ratelimit-(.+)-remaining$/, (name, what) => `anthropic-ratelimit-${name}-${what}`],
];

/** Fields of language-model services: a quota for requests and one for tokens, each a bucket. */
function named(fields: Fields, now: number): ServerQuota[] {
  const found: ServerQuota[] = [];
  for (const [field, remaining] of fields) {
    for (const [pattern, sister] of NAMED) {
      const name = pattern.exec(field)?.[1];
      if (name === undefined) continue;
      const reset = fields.get(sister(name, "reset"));
      const limit = fields.get(sister(name, "limit"));
      found.push(...quota(remaining, reset, limit, now, { name, gradual: true }));
    }
  }
  return found;
}

/** Shopify's bucket is empty after this time if it was full, whatever the plan's limit. */
const SHOPIFY_DRAINS_MS = 20_000;

/** `32/40`: 32 of a bucket for 40 requests are used, and leak out evenly. */
function shopify(fields: Fields): ServerQuota[] {
  const field = fields.get("x-shopify-shop-api-call-limit");
  if (field === undefined) return [];
  const [used, limit] = field.split("/").map(amount);
  if (used === undefined || !limit) return [];
  const resetMs = SHOPIFY_DRAINS_MS * (used / limit);
  const remaining = Math.max(0, limit - used);
  return [{ name: undefined, remaining, limit, resetMs, windowMs: undefined, gradual: true }];
}

type Text = string | null | undefined;

/** Empty if the remaining amount is not reported. */
function quota(
  remaining: Text,
  reset: Text,
  limit: Text,
  now: number,
  { name, windowMs, gradual = false }: Partial<ServerQuota>,
): ServerQuota[] {
  const left = amount(remaining);
  if (left === undefined) return [];
  const resetMs = msUntil(reset, now) ?? windowMs;
  return [{ name, remaining: left, limit: amount(limit), resetMs, windowMs, gradual }];
}

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** Reads seconds from now, Unix time in seconds or ms, `6m0s`, an HTTP date or an ISO date. */
function msUntil(text: Text, now: number): number | undefined {
  const number = amount(text);
  if (number !== undefined) {
    if (number < 1e9) return number * 1000;
    return Math.max(0, (number < 1e12 ? number * 1000 : number) - now);
  }
  const value = text?.trim() ?? "";
  if (/^(\d+(\.\d+)?(ms|[smhd]))+$/.test(value)) {
    const parts = value.matchAll(/([\d.]+)(ms|[smhd])/g);
    const sum = [...parts].reduce((ms, [, n, unit = ""]) => ms + Number(n) * (UNITS[unit] ?? 0), 0);
    return Number.isFinite(sum) ? sum : undefined;
  }
  const at = readDate(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

/** Accepts ISO dates and the three forms of HTTP; `Date.parse` alone accepts nearly any text. */
function readDate(text: string): number {
  // C's asctime form, which has no time zone
  if (/^[a-z]{3} [a-z]{3} [ \d]\d [\d:]{8} \d{4}$/i.test(text)) return Date.parse(`${text} GMT`);
  return /^(\d{4}-\d\d-\d\dT|[a-z]{3,9}, )/i.test(text) ? Date.parse(text) : Number.NaN;
}

function seconds(text: Text): number | undefined {
  const value = amount(text);
  return value === undefined ? undefined : value * 1000;
}

/** A number as HTTP writes it, 0 or more. */
function amount(text: Text): number | undefined {
  const value = text?.trim() ?? "";
  if (!/^\d+(\.\d*)?$/.test(value)) return undefined;
  const number = Number(value);
  return Number.isFinite(number) ? number : undefined;
}

type Params = ReadonlyMap<string, string>;

interface Member {
  readonly name: string;
  /** The value in `name=value`. */
  readonly value: string | undefined;
  readonly params: Params;
}

/** Parses the part of structured lists and dictionaries that limits need: `a;b=1, "c d";e="f"`. */
function readList(field: string): Member[] {
  return split(field, ",").map((member) => {
    const [head = "", ...rest] = split(member, ";");
    const [name = "", value] = split(head, "=").map(unquote);
    const params = new Map<string, string>();
    for (const param of rest) {
      const [key = "", of = ""] = split(param, "=");
      params.set(unquote(key), unquote(of));
    }
    return { name, value, params };
  });
}

/** Splits at separators outside quotes. */
function split(text: string, separator: string): string[] {
  const parts: string[] = [];
  let from = 0;
  let isQuoted = false;
  for (let i = 0; i < text.length; i++) {
    const char = text[i];
    if (char === '"') isQuoted = !isQuoted;
    else if (char === "\\" && isQuoted) i += 1;
    else if (char === separator && !isQuoted) {
      parts.push(text.slice(from, i).trim());
      from = i + 1;
    }
  }
  parts.push(text.slice(from).trim());
  return parts;
}

function unquote(text: string): string {
  return text.startsWith('"') ? text.replace(/^"|"$/g, "").replace(/\\(.)/gs, "$1") : text;
}
