import ipaddr from "ipaddr.js";
import { type Checks, checkOptions, oneOf, whole, wholeAtLeastZero } from "../ground/check.ts";
import type { GatewayRequest } from "../request.ts";
import { ownActor } from "./actor.ts";
import { type ForwardedField, forwardedFor } from "./forwarded.ts";
import { ProxyCheck } from "./proxy-check.ts";

/** How the address of a client is found. */
export interface ClientOptions {
  /**
   * How many of your own proxies are in front; each appends the address of its client to X-Forwarded-For, or to the
   * `field` of `fromAddress`. 0 (the default): none, and the client is the peer of the connection. What clients write
   * into the field themselves is further to the left and never read. A warning is emitted once if the requests
   * contradict the number: the field is present with 0, or never present with 1 or more.
   */
  readonly trustedProxies?: number | undefined;
  /**
   * How many leading bits of an IPv6 address identify a client. A whole number from 1 to 128,
   * default 56. Providers give a customer at least a /64, usually a /56, sometimes a /48; with a
   * longer prefix than that, one customer counts as many clients.
   */
  readonly ipv6Prefix?: number | undefined;
}

/** The options of `fromAddress`. */
export interface AddressOptions extends ClientOptions {
  /** The field to which the proxies append. Default "x-forwarded-for". */
  readonly field?: ForwardedField | undefined;
  /**
   * Whether a `remoteAddress` that is not an address, such as a name or a hash in a log, counts as it
   * is. Default false: such a request has no address.
   */
  readonly names?: boolean | undefined;
}

export const CLIENT_OPTIONS: Checks<ClientOptions> = {
  trustedProxies: wholeAtLeastZero,
  ipv6Prefix: whole(1, 128),
};

const OPTIONS: Checks<AddressOptions> = {
  ...CLIENT_OPTIONS,
  field: oneOf("x-forwarded-for", "forwarded"),
  names: oneOf(true, false),
};

const IPV6_PREFIX = 56;

/** How many addresses of connections are remembered with their keys. */
const MOST_REMEMBERED = 1000;

export type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** An actor that `fromAddress` created. */
export type AddressActor = (request: GatewayRequest) => string | undefined;

type WholeAddress = (request: GatewayRequest) => Address | undefined;

const wholeAddresses = new WeakMap<object, WholeAddress>();

/** Returns the full address of a request that its actor counts by network. */
export function addressOf(actor: object): WholeAddress | undefined {
  return wholeAddresses.get(actor);
}

/** Marks an actor that counts by networks, or what wraps it. */
export function withAddress<A extends object>(actor: A, whole: WholeAddress): A {
  wholeAddresses.set(actor, whole);
  return actor;
}

/**
 * Creates an actor that returns the client's address. An IPv6 address counts by its first 56 bits
 * (see `ipv6Prefix`); an IPv4-mapped IPv6 address counts as the IPv4 address.
 *
 * @param options see `AddressOptions`
 * @returns an actor
 * @throws RangeError or TypeError that names the argument, its bound and what it got
 * @example
 * createGateway({ actors: { device: fromAddress({ trustedProxies: 1 }) }, … });
 */
export function fromAddress(options: AddressOptions = {}): AddressActor {
  checkOptions("fromAddress", options, OPTIONS);
  const { trustedProxies = 0, field = "x-forwarded-for", ipv6Prefix = IPV6_PREFIX } = options;
  const { names = false } = options;
  const check = new ProxyCheck(trustedProxies, field);

  /** The client's address: the first that `read` understands, otherwise that of the connection. */
  const find = <T>(request: GatewayRequest, read: (text: string) => T | undefined) => {
    const list = trustedProxies > 0 ? request.header(field) : undefined;
    if (list !== undefined) {
      // if a proxy hides the client's address, the proxy's own address counts
      for (const text of forwardedFor(field, list, trustedProxies)) {
        const address = read(text);
        if (address !== undefined) return address;
      }
    }
    return request.remoteAddress === undefined ? undefined : read(request.remoteAddress);
  };

  const network = (text: string) => canonical(text, ipv6Prefix);
  // a connection sends many requests; a list of a proxy is another text for each client
  const read = trustedProxies === 0 ? remembering(network) : network;
  const actor: AddressActor = ownActor((request: GatewayRequest) => {
    check.look(request);
    return find(request, read) ?? (names ? request.remoteAddress : undefined);
  });
  return withAddress(actor, (request) => find(request, parseAddress));
}

/** Remembers the results for some texts: a lookup takes a fraction of the time of parsing. */
function remembering<T>(parse: (text: string) => T | undefined): (text: string) => T | undefined {
  const known = new Map<string, T>();
  return (text) => {
    const before = known.get(text);
    if (before !== undefined) return before;
    const found = parse(text);
    if (found === undefined) return undefined;
    if (known.size >= MOST_REMEMBERED) known.clear();
    known.set(text, found);
    return found;
  };
}

const MAPPED = "::ffff:";
const NUMBER = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const FOUR_NUMBERS = new RegExp(`^(?:${MAPPED})?(?:${NUMBER}\\.){3}${NUMBER}$`);

/**
 * Returns an address as a key, "192.0.2.1" or "2001:db8:0:100::/56"; undefined for a text that is
 * not an address. A port and brackets are ignored.
 *
 * @param ipv6Prefix how many bits of an IPv6 address count
 */
export function canonical(text: string, ipv6Prefix = IPV6_PREFIX): string | undefined {
  // the form that most sockets report
  if (FOUR_NUMBERS.test(text)) return text.startsWith(MAPPED) ? text.slice(MAPPED.length) : text;
  const groups = plainGroups(text);
  if (groups !== undefined) return network(groups, ipv6Prefix);
  const address = parseAddress(text);
  if (address === undefined) return undefined;
  if (address.kind() === "ipv4") return address.toString();
  return network((address as ipaddr.IPv6).parts, ipv6Prefix);
}

function network(groups: readonly number[], prefix: number): string {
  let text = "";
  for (let i = 0; i * 16 < prefix; i++) {
    const spare = Math.max(0, (i + 1) * 16 - prefix);
    const group = ((groups[i] ?? 0) >> spare) << spare;
    text += i === 0 ? group.toString(16) : `:${group.toString(16)}`;
  }
  return prefix > 112 ? `${text}/${prefix}` : `${text}::/${prefix}`;
}

/**
 * Returns the groups of an IPv6 address that consists of groups only, as most do; undefined for all
 * other forms. A fast path: the full parser takes as long as Node takes for a whole request.
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

/** Whether it is an IPv4-mapped address. */
function isMapped(groups: readonly number[]): boolean {
  return groups[5] === 0xffff && groups.findIndex(Boolean) === 5;
}

/** In `Forwarded` a port may be obfuscated. */
const WITH_PORT = /^(?:\[([^\]]*)\]|([0-9.]+))(?::(?:[0-9]{1,5}|_[\w.-]+))?$/;
/** An address with a zone may be longer, but addresses from outside have no zone. */
const LONGEST = 64;

/** Parses the full address; an IPv4-mapped one becomes the IPv4 address. */
export function parseAddress(text: string): Address | undefined {
  const [, inBrackets, withoutPort] = text.length > LONGEST ? [] : (WITH_PORT.exec(text) ?? []);
  const bare = inBrackets ?? withoutPort ?? text;
  if (bare.length > LONGEST) return undefined;
  // rejects the forms of C, such as "0x7f.1": otherwise one address could be two clients
  if (ipaddr.IPv4.isValidFourPartDecimal(bare)) return ipaddr.IPv4.parse(bare);
  return ipaddr.IPv6.isValid(bare) ? ipaddr.process(bare) : undefined;
}
