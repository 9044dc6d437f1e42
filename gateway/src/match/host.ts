/** The host names of a request, in every way to read them. */
import type { GatewayRequest } from "../request.ts";

const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/([^/?#\\]*)/i;
/** A path that no URL parser reads as a host. */
const PLAIN_PATH = /^\/(?![/\\\t\n\r])/;
/** The host that a URL parser finds in a target without one. */
const NO_HOST = "none.invalid";

/**
 * Returns the host names that a server may take a request to be for: that of its target, if it has
 * one, and those of its header, each as it is written, up to the first colon or comma, and as a URL parser
 * reads it. In lower case, without user, port and dot at the end.
 */
export function hostsOf(request: GatewayRequest): readonly string[] {
  const { url } = request;
  const inTarget = ORIGIN.exec(url)?.[1] || (PLAIN_PATH.test(url) ? undefined : parsedTarget(url));
  const names = [inTarget, request.header("host"), authorityOf(request)].flatMap((host) => {
    if (host === undefined) return [];
    const [item = ""] = host.split(",", 1);
    return [bare(host), bare(cut(host)), parsed(host), ...(item === host ? [] : [parsed(item)])];
  });
  return [...new Set(names)];
}

/** The field of HTTP/2. Where a platform's `Headers` rejects its name, there is none. */
function authorityOf(request: GatewayRequest): string | undefined {
  try {
    return request.header(":authority");
  } catch {
    return undefined;
  }
}

/** @param wanted a host name; "*.example.com" is every name below example.com */
export function isHost(wanted: string, host: string): boolean {
  const name = wanted.toLowerCase();
  return name.startsWith("*.") ? host.endsWith(name.slice(1)) : host === name;
}

function bare(host: string): string {
  return host
    .trim()
    .toLowerCase()
    .replace(/^.*@/, "")
    .replace(/:[0-9]*$/, "")
    .replace(/(?<!\.)\.+$/, "");
}

/** As servers read it that look for a port, or for the next item of a list, and check neither. */
function cut(host: string): string {
  return host.replace(/[:,].*$/, "");
}

/** As a server reads it that resolves the target: "//host/path" and "http:host" have a host too. */
function parsedTarget(target: string): string | undefined {
  try {
    // to the scheme of its base "http:host" would be a relative path
    const { hostname } = new URL(target, `ws://${NO_HOST}`);
    return hostname === NO_HOST ? undefined : hostname;
  } catch {
    return undefined;
  }
}

function parsed(host: string): string {
  try {
    return bare(new URL(`http://${host}`).hostname);
  } catch {
    return bare(host);
  }
}
