/**
 * Finds the field of a log line with the client. In doubt it reports none, rather than a wrong one.
 */
import { isIP } from "node:net";

/** The client, and its user. */
export interface Client {
  readonly address: string;
  readonly user: string;
}

/** Why a line could not be read. */
export interface Unread {
  /** From 1. */
  readonly column: number;
  readonly message: string;
}

const SEVERAL: Unread = {
  column: 1,
  message:
    "found several addresses, allowed: one, or a forwarded-for list if --trusted-proxies says how many of your own proxies have appended to it",
};
/** Several addresses, or quotes around them, as in logged header fields. */
const LIST = /[,"]/;
/** An address with a port, as load balancers write it: [::1]:80, 192.0.2.1:80. */
const WITH_PORT = /^(?:\[([0-9a-f:.]+)\]|([0-9.]+))(?::[0-9]+)?$/i;
const NAME_WITH_PORT = /^[^[\]:]+:[0-9]+$/;
/** A quick test of the first and last character: the full test costs more than most lines need. */
const MAY_BE_ADDRESS = /^[[0-9a-f:].*[\]0-9a-f:]$/i;

/**
 * Finds the client in the fields before the time. The combined format has the address, an identity
 * that is nearly always "-", and the user. Some servers write the virtual host before these.
 *
 * @param first the first field
 * @param identity the second field
 * @param user everything up to the time; a user name may contain blanks
 * @param trustedProxies if above 0, a forwarded-for list may stand in the place of the address
 */
export function findClient(
  first: string,
  identity: string,
  user: string,
  trustedProxies = 0,
): Client | Unread {
  if (identity === "-" && !user.includes(" ") && !isAddress(user)) {
    return clientOf(first, user, trustedProxies);
  }
  const listed =
    trustedProxies > 0 ? listedClient(`${first} ${identity} ${user}`, trustedProxies) : undefined;
  if (listed !== undefined) return listed;
  const fields = [first, identity, ...user.split(" ")];
  const addresses = fields.flatMap((field, i) => (isAddress(field) ? i : []));
  const [at = 0, next] = addresses;
  // the server's own address, with its port, is before the client's
  const isServer = at === 0 && next === 1 && NAME_WITH_PORT.test(first);
  if (next !== undefined && (addresses.length > 2 || !isServer)) return SEVERAL;
  const client = isServer ? 1 : at;
  if (fields.slice(0, client).some((field) => LIST.test(field))) return SEVERAL;
  if (client === 0) return clientOf(first, user);
  if (fields.length < client + 3) {
    const message = "found an address behind the first field, allowed: address, identity, user";
    return { column: 1, message };
  }
  const address = fields[client] ?? "";
  return clientOf(address, fields.slice(client + 2).join(" "));
}

/** Reads `list identity user`, where the list may have quotes, and fields before it. */
function listedClient(head: string, trustedProxies: number): Client | undefined {
  const open = head.indexOf('"');
  const close = head.indexOf('"', open + 1);
  const comma = head.lastIndexOf(",");
  const isQuoted = open >= 0 && close > Math.max(open, comma);
  if (!isQuoted && comma < 0) return undefined;
  // without quotes the list ends at the first blank behind the last comma
  const start = head.length - head.slice(comma + 1).trimStart().length;
  const end = isQuoted ? close + 1 : head.indexOf(" ", start);
  const list = isQuoted ? head.slice(open + 1, close) : head.slice(0, Math.max(0, end));
  const [identity, ...user] = head.slice(end + 1).split(" ");
  const before = isQuoted ? head.slice(0, open).trim() : "-";
  const address = listedAddress(list, trustedProxies) ?? (list === "-" ? before || "-" : undefined);
  if (end < 0 || identity === undefined || user.length === 0 || address === undefined) {
    return undefined;
  }
  return { address, user: user.join(" ") };
}

/**
 * Returns the client's address in a forwarded-for list, as the gateway finds it: the first address among
 * the last `trustedProxies` elements. Undefined if there is none.
 */
export function listedAddress(list: string, trustedProxies: number): string | undefined {
  const elements = trustedProxies > 0 ? list.split(",").slice(-trustedProxies) : [];
  // other fields of the line may stand before the first element
  const addresses = elements.map((element) => element.trim().replace(/^.* /s, ""));
  return addresses.find(isAddress)?.replace(WITH_PORT, "$1$2");
}

/** The name of a forwarded-for list in JSON; the last field of the combined format; an address in it. */
const FORWARDED_NAME = /forwarded[-_]?for"/i;
const LAST_FIELD = /" "([^"]*)"\s*$/;
const LISTED = /^(?:\d{1,3}(?:\.\d{1,3}){3}|(?=.*:)[0-9a-f:]+)$/i;

/** Returns whether a line seems to have a forwarded-for list beside the address of the connection. */
export function seemsForwarded(line: string): boolean {
  if (FORWARDED_NAME.test(line)) return true;
  const last = LAST_FIELD.exec(line)?.[1] ?? "";
  return LISTED.test(last.slice(last.lastIndexOf(",") + 1).trimStart());
}

/**
 * @param field an address, with or without a port; or a name or a hash in its place
 * @param trustedProxies if above 0, the field may be a forwarded-for list
 */
export function clientOf(field: string, user = "-", trustedProxies = 0): Client | Unread {
  const bare = trustedProxies > 0 ? field.replace(/^"(.*)"$/s, "$1") : field;
  if (LIST.test(bare)) {
    const listed = trustedProxies > 0 ? listedAddress(bare, trustedProxies) : undefined;
    return listed === undefined ? SEVERAL : { address: listed, user };
  }
  const [, inBrackets, plain] = WITH_PORT.exec(bare) ?? [];
  const address = inBrackets ?? plain ?? bare;
  if (isIP(address) === 0 && NAME_WITH_PORT.test(bare)) {
    return { column: 1, message: "found a name with a port, allowed: the address of the client" };
  }
  return { address, user };
}

function isAddress(field: string): boolean {
  if (!MAY_BE_ADDRESS.test(field)) return false;
  const [, inBrackets, plain] = WITH_PORT.exec(field) ?? [];
  return isIP(inBrackets ?? plain ?? field) !== 0;
}
