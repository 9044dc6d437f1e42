import { type Checks, checkFunction, checkOptions, checkText, show } from "../ground/check.ts";
import { askInTime, EVERY_MS, POLL_OPTIONS, type PollOptions, poll, TIMEOUT_MS } from "./poll.ts";
import { LONGEST_TEXT, type RuleSource, tooLong } from "./source.ts";

/** The options of `urlSource`. */
export interface UrlSourceOptions extends PollOptions {
  /** Header fields to send, such as `authorization`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The function that sends the requests. Default: the platform's own. */
  readonly fetch?: typeof fetch | undefined;
}

const OPTIONS: Checks<UrlSourceOptions> = {
  ...POLL_OPTIONS,
  headers: (_, headers) => new Headers(headers as UrlSourceOptions["headers"]), // throws if they cannot be sent
  fetch: checkFunction,
};

/**
 * Rules at a URL, requested regularly. The server's ETag is sent back as If-None-Match, so
 * unchanged rules are not transferred again.
 *
 * @param url of YAML, at most 524 288 bytes; http or https
 * @param options see `UrlSourceOptions`
 * @returns a source for `createGateway`
 * @throws TypeError or RangeError that names the argument, its bound and what it got
 * @example
 * const remote = urlSource("https://config.example/rules.yaml", { everyMs: 10_000 });
 * const gateway = await createGateway({ rules: [remote, fileSource("rules.yaml")] });
 */
export function urlSource(url: string | URL, options: UrlSourceOptions = {}): RuleSource {
  checkOptions("options", options, OPTIONS);
  const { headers = {}, everyMs = EVERY_MS, timeoutMs = TIMEOUT_MS } = options;
  const address = checkUrl(url);
  let last: { readonly tag: string; readonly text: string } | undefined;

  async function ask(signal: AbortSignal): Promise<string> {
    const { fetch = globalThis.fetch } = options;
    const known = last === undefined ? {} : { "if-none-match": last.tag };
    const response = await fetch(address, { headers: { ...headers, ...known }, signal });
    if (response.status === 304 && last !== undefined) return last.text;
    if (!response.ok) {
      await response.body?.cancel();
      throw new Error(`${address} answered ${response.status}`);
    }
    const text = await textOf(response, address);
    const tag = response.headers.get("etag");
    last = tag === null ? undefined : { tag, text };
    return text;
  }

  return {
    name: address,

    load: (signal) => askInTime(timeoutMs, address, signal, ask),

    watch: (changed) => poll(changed, everyMs),
  };
}

function checkUrl(url: string | URL): string {
  const text = checkText("url", url instanceof URL ? url.href : url);
  const parsed = URL.canParse(text) ? new URL(text) : undefined;
  if (parsed === undefined || !/^https?:$/.test(parsed.protocol)) {
    throw new TypeError(`url must be an http or https URL, got ${show(text)}`);
  }
  // fetch refuses these, and messages would reveal them
  if (parsed.username !== "" || parsed.password !== "") {
    throw new TypeError("url must be without user and password: send an authorization header");
  }
  return parsed.href;
}

/** Reads at most the allowed length, whatever length the server announces. */
async function textOf(response: Response, name: string): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += (chunk as Uint8Array).byteLength;
    if (size > LONGEST_TEXT) throw tooLong(name);
    text += decoder.decode(chunk as Uint8Array, { stream: true });
  }
  return text + decoder.decode();
}
