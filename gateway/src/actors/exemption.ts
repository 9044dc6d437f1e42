/** Finds the requests to which a rule does not apply, by the value of its actor. */
import ipaddr from "ipaddr.js";
import type { GatewayRequest } from "../request.ts";
import { type Address, addressOf, parseAddress } from "./address.ts";

/** The addresses that share their first `bits` bits. */
interface Range {
  readonly base: Address;
  readonly bits: number;
}

/**
 * @param listed values; for addresses also ranges, "192.0.2.0/24"
 * @param actor of the rule. If `fromAddress` created it, the full address is compared, because the
 *   value by which requests are counted may be a network
 * @param isDevice whether its values are addresses or networks
 */
export function exemption(
  listed: readonly string[],
  actor: object,
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

/**
 * Parses a range or an address; undefined for anything else, because an actor may return any text.
 */
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
