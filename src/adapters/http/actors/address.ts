import ipaddr from "ipaddr.js";
import { atLeastZero, type Bound, checkNumber, checkOneOf, checkOptions } from "../../../check.ts";
import type { GatewayRequest } from "../request.ts";

export interface AddressOptions {
  /**
   * How many proxies of yours stand in front, each of which adds the address of whoever called it.
   * 0 (the default): none, the client is who holds the connection. What clients write into the
   * field themselves stands further to the left and is never read.
   */
  readonly trustedProxies?: number | undefined;
  /** The field that they add to. Default "x-forwarded-for". */
  readonly field?: "x-forwarded-for" | "forwarded" | undefined;
}

const wholeAtLeastZero: Bound = {
  words: "a whole number, 0 or more",
  holds: (value) => atLeastZero.holds(value) && Number.isInteger(value),
};

/**
 * The actor of an address: the client's own. An IPv6 address counts by its /64, since that is what
 * one customer gets at least; an IPv4 address in IPv6 dress is the IPv4 address.
 *
 * @param options see `AddressOptions`
 * @returns an actor
 * @throws RangeError or TypeError that names the argument, its bound and what it got
 * @example
 * createGateway({ actors: { device: fromAddress({ trustedProxies: 1 }) }, … });
 */
export function fromAddress(
  options: AddressOptions = {},
): (request: GatewayRequest) => string | undefined {
  checkOptions("fromAddress", options, ["trustedProxies", "field"]);
  const { trustedProxies = 0, field = "x-forwarded-for" } = options;
  checkNumber("trustedProxies", trustedProxies, wholeAtLeastZero);
  checkOneOf("field", field, ["x-forwarded-for", "forwarded"]);
  return (request) => {
    const told = trustedProxies > 0 ? request.header(field) : undefined;
    if (told !== undefined) {
      // the nearest to the client that can be believed; who hides it is taken for the proxy before
      for (const element of lastElements(told, trustedProxies)) {
        const address = canonical(field === "forwarded" ? forOf(element) : element);
        if (address !== undefined) return address;
      }
    }
    return request.remoteAddress === undefined ? undefined : canonical(request.remoteAddress);
  };
}

/**
 * The last elements of a list, the first of these first. They were written by our proxies and are
 * well-formed; what is to their left may be anything, so quotes are counted from the right.
 */
function lastElements(list: string, count: number): readonly string[] {
  const elements: string[] = [];
  let quoted = false;
  let end = list.length;
  for (let i = list.length - 1; i >= -1 && elements.length < count; i--) {
    const char = i < 0 ? "," : list[i];
    if (char === '"' && !(quoted && isEscaped(list, i))) quoted = !quoted;
    if (char !== "," || (quoted && i >= 0)) continue;
    elements.unshift(list.slice(i + 1, end).trim());
    end = i;
  }
  return elements;
}

function isEscaped(text: string, at: number): boolean {
  let backslashes = 0;
  while (text[at - 1 - backslashes] === "\\") backslashes += 1;
  return backslashes % 2 === 1;
}

const FOR = /(?:^|;)\s*for\s*=\s*(?:"([^"]*)"|([^\s;"]*))\s*(?=;|$)/i;

function forOf(element: string): string {
  const [, quoted, token] = FOR.exec(element) ?? [];
  return quoted ?? token ?? "";
}

const MAPPED = "::ffff:";
const NUMBER = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const FOUR_NUMBERS = new RegExp(`^(?:${MAPPED})?(?:${NUMBER}\\.){3}${NUMBER}$`);

/**
 * An address as a key: "192.0.2.1", "2001:db8:0:1::/64"; undefined for what is no address. A port
 * and brackets do not matter.
 */
export function canonical(text: string): string | undefined {
  // what most sockets tell
  if (FOUR_NUMBERS.test(text)) return text.startsWith(MAPPED) ? text.slice(MAPPED.length) : text;
  const groups = plainGroups(text);
  if (groups !== undefined) return network(groups);
  const address = parse(text);
  if (address === undefined) return undefined;
  return address.kind() === "ipv4" ? address.toString() : network((address as ipaddr.IPv6).parts);
}

function network(groups: readonly number[]): string {
  const [a, b, c, d] = groups.map((group) => group.toString(16));
  return `${a}:${b}:${c}:${d}::/64`;
}

/**
 * The groups of an IPv6 address that is nothing but groups, as most are: the parser takes as long
 * as Node does for a whole request. Undefined for all that it must look at.
 */
function plainGroups(text: string): readonly number[] | undefined {
  if (!GROUPS.test(text)) return undefined;
  const [before = "", after, more] = text.split("::");
  const front = before === "" ? [] : before.split(":");
  const back = after ? after.split(":") : [];
  const zeros = 8 - front.length - back.length;
  if (more !== undefined || (after === undefined ? zeros !== 0 : zeros < 1)) return undefined;
  const groups = [...front, ...Array<string>(zeros).fill("0"), ...back];
  if (groups.some(({ length }) => length < 1 || length > 4)) return undefined;
  const numbers = groups.map((group) => Number.parseInt(group, 16));
  return isMapped(numbers) ? undefined : numbers;
}

const GROUPS = /^[0-9a-f:]{2,39}$/i;

/** It is an IPv4 address. */
function isMapped(groups: readonly number[]): boolean {
  return groups[5] === 0xffff && groups.findIndex(Boolean) === 5;
}

const WITH_PORT = /^(?:\[([^\]]*)\]|([0-9.]+))(?::[0-9]{1,5})?$/;
/** With a zone it may be longer than this, but then it is nobody's outside. */
const LONGEST = 64;

function parse(text: string): ipaddr.IPv4 | ipaddr.IPv6 | undefined {
  const [, inBrackets, withoutPort] = text.length > LONGEST ? [] : (WITH_PORT.exec(text) ?? []);
  const bare = inBrackets ?? withoutPort ?? text;
  if (bare.length > LONGEST) return undefined;
  // not the forms that only C reads: "0x7f.1" and 127.0.0.1 would be two clients
  if (ipaddr.IPv4.isValidFourPartDecimal(bare)) return ipaddr.IPv4.parse(bare);
  return ipaddr.IPv6.isValid(bare) ? ipaddr.process(bare) : undefined;
}

/**
 * Which values of an actor a rule does not hold for.
 *
 * @param listed values; of addresses also ranges, "192.0.2.0/24"
 */
export function exemption(
  listed: readonly string[],
  areAddresses: boolean,
): (value: string) => boolean {
  if (listed.length === 0) return () => false;
  const values = new Set(listed);
  const ranges = areAddresses ? listed.flatMap((each) => range(each) ?? []) : [];
  if (ranges.length === 0) return (value) => values.has(value);
  return (value) => {
    if (values.has(value)) return true;
    const address = parse(value.replace(/\/64$/, ""));
    return ranges.some(
      ({ base, bits }) => address?.kind() === base.kind() && address.match(base, bits),
    );
  };
}

interface Range {
  readonly base: ipaddr.IPv4 | ipaddr.IPv6;
  readonly bits: number;
}

/**
 * Undefined for what is neither a range nor an address: an actor may give any text. As part of the
 * /64 that an IPv6 address counts by, a smaller range is all of it.
 */
export function range(text: string): Range | undefined {
  if (ipaddr.isValidCIDR(text)) {
    const [base, bits] = ipaddr.parseCIDR(text);
    if (base.kind() === "ipv4") return { base, bits };
    const address = base as ipaddr.IPv6;
    return address.isIPv4MappedAddress() && bits >= 96
      ? { base: address.toIPv4Address(), bits: bits - 96 }
      : { base, bits: Math.min(bits, 64) };
  }
  const base = parse(text);
  return base && { base, bits: base.kind() === "ipv4" ? 32 : 64 };
}
