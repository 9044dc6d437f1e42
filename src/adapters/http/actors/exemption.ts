/** Which values of an actor a rule does not hold for. */
import ipaddr from "ipaddr.js";
import type { GatewayRequest } from "../request.ts";
import type { Actor } from "./actor.ts";
import { type Address, addressOf, parseAddress } from "./address.ts";

/** Addresses that have the first `bits` bits in common. */
interface Range {
  readonly base: Address;
  readonly bits: number;
}

/**
 * @param listed values; of addresses also ranges, "192.0.2.0/24"
 * @param actor of the rule: one that `fromAddress` made is asked for the whole address, since the
 *   value that requests are counted by may be that of a network
 * @param isDevice its values are addresses, or networks
 */
export function exemption(
  listed: readonly string[],
  actor: Actor,
  isDevice: boolean,
): (value: string, request: GatewayRequest) => boolean {
  if (listed.length === 0) return () => false;
  const values = new Set(listed);
  const wholeAddress = addressOf(actor);
  const ranges = isDevice || wholeAddress ? listed.flatMap((each) => range(each) ?? []) : [];
  if (ranges.length === 0) return (value) => values.has(value);
  return (value, request) => {
    if (values.has(value)) return true;
    const own = wholeAddress ? single(wholeAddress(request)) : range(value);
    return own !== undefined && ranges.some((each) => contains(each, own));
  };
}

function contains(outer: Range, inner: Range): boolean {
  return (
    inner.base.kind() === outer.base.kind() &&
    inner.bits >= outer.bits &&
    inner.base.match(outer.base, outer.bits)
  );
}

/** Undefined for what is neither a range nor an address: an actor may give any text. */
export function range(text: string): Range | undefined {
  if (!ipaddr.isValidCIDR(text)) return single(parseAddress(text));
  const [base, bits] = ipaddr.parseCIDR(text);
  if (base.kind() === "ipv4") return { base, bits };
  const address = base as ipaddr.IPv6;
  return address.isIPv4MappedAddress() && bits >= 96
    ? { base: address.toIPv4Address(), bits: bits - 96 }
    : { base, bits };
}

function single(base: Address | undefined): Range | undefined {
  return base && { base, bits: base.kind() === "ipv4" ? 32 : 128 };
}
