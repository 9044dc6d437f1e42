/** Sends one request over a connection of its own, by HTTP/1.1 or HTTP/2. */
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { connect as connect2 } from "node:http2";
import { HOSTS, type Host, HTTP2_HOSTS, type Running } from "./servers.ts";

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

export interface Asked {
  readonly method?: string;
  readonly headers?: Record<string, string>;
}

export async function ask1({ url }: Running, path: string, asked: Asked = {}): Promise<Reply> {
  const sent = httpRequest(`${url}${path}`, { agent: false, ...asked }).end();
  const [response] = await once(sent, "response");
  let body = "";
  for await (const chunk of response) body += chunk;
  return { status: response.statusCode, headers: response.headers, body };
}

export async function ask2({ url }: Running, path: string, asked: Asked = {}): Promise<Reply> {
  const session = connect2(url);
  const { method = "GET", headers = {} } = asked;
  const stream = session.request({ ":method": method, ":path": path, ...headers });
  const [response] = await once(stream, "response");
  let body = "";
  for await (const chunk of stream) body += chunk;
  if (!stream.closed) await once(stream, "close");
  session.destroy();
  return { status: Number(response[":status"]), headers: response, body };
}

/** Every server, and how to ask it. */
export const EVERY: Readonly<Record<string, [Host, typeof ask1]>> = {
  ...Object.fromEntries(Object.entries(HOSTS).map(([name, host]) => [name, [host, ask1]])),
  ...Object.fromEntries(Object.entries(HTTP2_HOSTS).map(([name, host]) => [name, [host, ask2]])),
};
