/** Converts a line of an access log to a request. */
import type { GatewayRequest } from "smooth-limiter-gateway";
import { clientOf, findClient, listedAddress, type Unread } from "./log-client.ts";
import { parseClfTime, parseTime } from "./log-time.ts";

/** A request from a log. Written out without spreads, which would take longer than the reading of the line. */
export interface LogEntry extends GatewayRequest {
  /** Unix time, ms. */
  readonly atMs: number;
  readonly method: string;
  readonly url: string;
  readonly remoteAddress: string | undefined;
  /** Whether the log's time has whole seconds only. */
  readonly isCoarse: boolean;
  /** By the name of the actor. */
  readonly actors: Readonly<Record<string, string | undefined>>;
  /** Of the response; undefined if the log does not say it. */
  readonly status: number | undefined;
}

/** A log contains no header fields. */
export function header(): undefined {
  return undefined;
}

/** The line was written when the request was over: rules that count failures see its status. */
export function onAnswered(this: LogEntry, answered: (status?: number) => void): void {
  answered(this.status);
}

/** The field names of JSON lines for each property; dots separate the names of nested objects. */
export interface Fields {
  readonly time: readonly string[];
  readonly address: readonly string[];
  /** A forwarded-for list, as text or as an array. It counts only with trusted proxies. */
  readonly forwarded: readonly string[];
  readonly method: readonly string[];
  readonly url: readonly string[];
  readonly status: readonly string[];
  /** For each actor. */
  readonly actors: Readonly<Record<string, readonly string[]>>;
}

/** The names that nginx, Apache, Caddy, Traefik, pino and others use. */
export const DEFAULT_FIELDS: Fields = {
  time: ["time", "timestamp", "@timestamp", "ts", "time_iso8601", "time_local", "msec", "StartUTC"],
  address: [
    ...["remote_addr", "remoteAddress", "remote_ip", "client_ip", "ip", "ClientHost"],
    ...["request.remote_ip", "req.remoteAddress"],
  ],
  forwarded: [
    ...["http_x_forwarded_for", "x_forwarded_for", "xForwardedFor", "forwarded_for"],
    ...["request.headers.X-Forwarded-For", "request_X-Forwarded-For"],
    ...["req.headers.x-forwarded-for", "headers.x-forwarded-for"],
  ],
  method: ["method", "request_method", "RequestMethod", "request.method", "req.method"],
  url: ["url", "request_uri", "uri", "path", "RequestPath", "request.uri", "req.url"],
  status: [
    ...["status", "status_code", "statusCode", "DownstreamStatus"],
    ...["response.status", "res.statusCode"],
  ],
  actors: { account: ["account", "user", "remote_user"] },
};

/**
 * @param trustedProxies how many of the application's own proxies have appended to forwarded-for lists;
 *   with 0 the address of the connection counts, and a list in its place is an error
 * @returns the request, or why the line could not be read
 */
export function readLine(line: string, fields: Fields, trustedProxies = 0): LogEntry | Unread {
  return JSON_LINE.test(line)
    ? readJson(line, fields, trustedProxies)
    : readCombined(line, trustedProxies);
}

const JSON_LINE = /^\s*\{/;

// -- the combined format: address identity user [time] "method target protocol" … --

/** Without names for its groups: V8 would create an object of them for each line. */
const COMBINED =
  /^(\S+) (\S+) (.*?) \[([^\][]+)\] "(?:([A-Za-z!#$%&'*+.^_`|~0-9-]{1,32}) ((?:[^"\\]|\\.)*?)(?: HTTP\/[0-9.]+)?)"(?: ([1-5][0-9]{2})(?= |$))?/s;
/** What the combined format begins with: the error of a line that is not in it names what is missing first. */
const PARTS: readonly (readonly [RegExp, string])[] = [
  [/^\S+ /, "found no address, allowed: the combined format, or JSON"],
  [/^\S+ \S+ [^[]+/, "found no identity and a user, allowed: the combined format, or JSON"],
  [/^[^[]+\[[^\]]+\]/, "found no time in brackets, allowed: the combined format, or JSON"],
];

/** Size, referrer and user agent behind the status, and the forwarded-for list that nginx's `main` format adds. */
const FORWARDED = /^ \S+ "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*" "((?:[^"\\]|\\.)*)"/s;

function readCombined(line: string, trustedProxies: number): LogEntry | Unread {
  const [all = "", first = "", identity = "", user = "", time = "", method = "", url = "", status] =
    COMBINED.exec(line) ?? [];
  if (first === "") return unreadCombined(line);
  const client = findClient(first, identity, user, trustedProxies);
  if ("message" in client) return client;
  const atMs = parseClfTime(time);
  if (Number.isNaN(atMs)) {
    const column = line.indexOf("[") + 2;
    return { column, message: "found no time such as 10/Oct/2000:13:55:36 -0700" };
  }
  const list = trustedProxies > 0 ? FORWARDED.exec(line.slice(all.length))?.[1] : undefined;
  return {
    atMs,
    method,
    url,
    isCoarse: true,
    remoteAddress: (list && listedAddress(list, trustedProxies)) ?? known(client.address),
    actors: { account: known(client.user) },
    status: statusOf(status),
    header,
    onAnswered,
  };
}

function unreadCombined(line: string): Unread {
  let column = 1;
  for (const [part, message] of PARTS) {
    const length = part.exec(line)?.[0].length;
    if (length === undefined) return { column, message };
    column = length + 1;
  }
  return { column, message: 'found no request such as "GET /path HTTP/1.1"' };
}

function statusOf(text: string | undefined): number | undefined {
  return text !== undefined && /^[1-5][0-9]{2}$/.test(text) ? Number(text) : undefined;
}

/** "-" means that the value is absent. */
function known(value: string): string | undefined {
  return value === "-" || value === "" ? undefined : value;
}

// -- JSON lines --

function readJson(line: string, fields: Fields, trustedProxies: number): LogEntry | Unread {
  let data: unknown;
  try {
    data = JSON.parse(line);
  } catch (error) {
    const { message } = error as Error;
    const at = /position (\d+)/.exec(message)?.[1];
    return { column: Number(at ?? 0) + 1, message: `found no JSON: ${message}` };
  }
  const time = pick(data, fields.time);
  const atMs = readTime(time);
  // a time beyond a `Date` would break the replay's clock
  if (!(Math.abs(atMs) <= LATEST_MS)) return lacks("time", fields.time);
  const request = textOf(pick(data, ["request"])) ?? "";
  const [, requestMethod, requestUrl] = /^(\S+) (.*?)(?: HTTP\/[0-9.]+)?$/s.exec(request) ?? [];
  const url = textOf(pick(data, fields.url)) ?? requestUrl;
  if (url === undefined) return lacks("url", fields.url);
  const method = textOf(pick(data, fields.method)) ?? requestMethod ?? "GET";
  const client = clientOf(textOf(pick(data, fields.address)) ?? "", "-", trustedProxies);
  if ("message" in client) return client;
  const actors: Record<string, string | undefined> = {};
  for (const [actor, names] of Object.entries(fields.actors)) {
    actors[actor] = textOf(pick(data, names));
  }
  // Caddy logs each header field as an array
  const list = trustedProxies > 0 ? String(pick(data, fields.forwarded) ?? "") : "";
  return {
    atMs,
    method,
    url,
    isCoarse: isWholeSeconds(time),
    remoteAddress: listedAddress(list, trustedProxies) ?? known(client.address),
    actors,
    status: statusOf(textOf(pick(data, fields.status))),
    header,
    onAnswered,
  };
}

function lacks(what: "time" | "url", names: readonly string[]): Unread {
  const noun = what === "url" ? "URL" : what;
  const message = `found no ${noun} in ${names.join(", ")}; --field ${what}=… names another field`;
  return { column: 1, message };
}

/** Returns the first of these fields that exists. */
function pick(data: unknown, names: readonly string[]): unknown {
  for (const name of names) {
    const value = at(data, name);
    if (value !== undefined && value !== null) return value;
  }
  return undefined;
}

/** A dot may also be part of the field's own name. */
function at(data: unknown, name: string): unknown {
  if (typeof data !== "object" || data === null) return undefined;
  if (Object.hasOwn(data, name)) return (data as Record<string, unknown>)[name];
  const dot = name.indexOf(".");
  if (dot < 0) return undefined;
  const inner = name.slice(0, dot);
  if (!Object.hasOwn(data, inner)) return undefined;
  return at((data as Record<string, unknown>)[inner], name.slice(dot + 1));
}

function textOf(value: unknown): string | undefined {
  if (typeof value === "number") return String(value);
  return typeof value === "string" ? known(value) : undefined;
}

/** The largest time of a `Date`. */
const LATEST_MS = 8.64e15;

/** Above this a number is ms (after 1973); below, seconds (before 5138). */
const LEAST_MS = 1e11;

/** Reads ISO 8601, the combined format's time, or Unix time in s, ms, µs or ns. */
function readTime(time: unknown): number {
  const number = typeof time === "string" && /^\d+(\.\d+)?$/.test(time) ? Number(time) : time;
  if (typeof number === "number") {
    if (number < LEAST_MS) return number * 1000;
    if (number < LEAST_MS * 1000) return number;
    return number < LEAST_MS * 1e6 ? number / 1000 : number / 1e6;
  }
  if (typeof time !== "string") return Number.NaN;
  return parseTime(time);
}

/** Decides by the notation: 12:00:00.000 is exact. */
function isWholeSeconds(time: unknown): boolean {
  if (typeof time === "number") return time < LEAST_MS && Number.isInteger(time);
  const text = String(time);
  return /^\d{1,11}$/.test(text) || (/:\d{2}:\d{2}/.test(text) && !/:\d{2}[.,]\d/.test(text));
}
