/** Which field of a log is the client. Where that is in doubt there is none, rather than a wrong one. */
import { isIP } from "node:net";

/** The client, and the user that stands behind it. */
export interface Client {
  readonly address: string;
  readonly user: string;
}

/** Why there is no client. */
export interface NoClient {
  readonly message: string;
}

const SEVERAL: NoClient = {
  message:
    "found several addresses, allowed: one; a log does not tell which proxies are trusted, so log the client's",
};
/** Of several addresses, or in quotes, as header fields are logged. */
const LIST = /[,"]/;
/** An address with a port, as load balancers write it: [::1]:80, 192.0.2.1:80. */
const WITH_PORT = /^(?:\[([0-9a-f:.]+)\]|([0-9.]+))(?::[0-9]+)?$/i;
const NAME_WITH_PORT = /^[^[\]:]+:[0-9]+$/;
/** Beginning and end of an address: to look closer costs more than most lines need. */
const MAY_BE_ADDRESS = /^[[0-9a-f:].*[\]0-9a-f:]$/i;

/**
 * Finds the client in the fields before the time. Those of the combined format are the address, an
 * identity that is "-" nearly always, and the user. Others write the virtual host in front.
 *
 * @param first the first field
 * @param identity the second field
 * @param user all that follows up to the time; a name may have blanks in it
 */
export function findClient(first: string, identity: string, user: string): Client | NoClient {
  if (identity === "-" && !user.includes(" ") && !isAddress(user)) return clientOf(first, user);
  const fields = [first, identity, ...user.split(" ")];
  const addresses = fields.flatMap((field, i) => (isAddress(field) ? i : []));
  const [at = 0, next] = addresses;
  // a server's own address, with its port, stands in front of the client's
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

/** @param field an address, with a port or without; or what a log has instead: a name, a hash */
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
