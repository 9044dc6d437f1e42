import type { GatewayRequest } from "../../../src/index.ts";

/** Makes a request without a server. */
export function request(
  url: string,
  {
    method = "GET",
    headers = {},
    ...rest
  }: Partial<Omit<GatewayRequest, "header">> & { headers?: Record<string, string> } = {},
): GatewayRequest {
  return {
    method,
    url,
    remoteAddress: "192.0.2.1",
    header: (name) => headers[name],
    ...rest,
  };
}
