/** The host names of a request, in every way to read them. */
import type { GatewayRequest } from "../request.ts";

const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/([^/?#\\]*)/i;

/**
 * Returns the host names that a server may take a request to be for: that of its target, if it has
 * one, and that of its header, each as it is written, up to the first colon or comma, and as a URL parser
 * reads it. In lower case, without user, port and dot at the end.
 */
export function hostsOf(request: GatewayRequest): readonly string[] {
  const inTarget = ORIGIN.exec(request.url)?.[1];
  const given = [inTarget, request.header("host")];
  // the field of HTTP/2; other servers reject its name
  if (inTarget === undefined) given.push(request.header(":authority"));
  const names = given.flatMap((host) =>
    host === undefined ? [] : [bare(host), bare(cut(host)), parsed(host)],
  );
  return [...new Set(names)];
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

function parsed(host: string): string {
  try {
    return bare(new URL(`http://${host}`).hostname);
  } catch {
    return bare(host);
  }
}
