/**
 * Finds the field of a log line with the client. In doubt it reports none, rather than a wrong one.
 */
import { isIP } from "node:net";

/** The client, and its user. */
export interface Client {
  readonly address: string;
  readonly user: string;
}

/** Why no client was found. */
export interface NoClient {
  readonly message: string;
}

const SEVERAL: NoClient = {
  message:
    "found several addresses, allowed: one; a log does not say which proxies are trusted, so log the client's address",
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
 */
export function findClient(first: string, identity: string, user: string): Client | NoClient {
  if (identity === "-" && !user.includes(" ") && !isAddress(user)) return clientOf(first, user);
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
    return { message: "found an address behind the first field, allowed: address, identity, user" };
  }
  const address = fields[client] ?? "";
  return clientOf(address, fields.slice(client + 2).join(" "));
}

/** @param field an address, with or without a port; or a name or a hash in its place */
export function clientOf(field: string, user = "-"): Client | NoClient {
  if (LIST.test(field)) return SEVERAL;
  const [, inBrackets, plain] = WITH_PORT.exec(field) ?? [];
  const address = inBrackets ?? plain ?? field;
  if (isIP(address) === 0 && NAME_WITH_PORT.test(field)) {
    return { message: "found a name with a port, allowed: the address of the client" };
  }
  return { address, user };
}

function isAddress(field: string): boolean {
  if (!MAY_BE_ADDRESS.test(field)) return false;
  const [, inBrackets, plain] = WITH_PORT.exec(field) ?? [];
  return isIP(inBrackets ?? plain ?? field) !== 0;
}
