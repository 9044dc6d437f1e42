/** `@upstash/redis`: Redis over HTTP, a request for each command. */

import { has } from "../methods.ts";
import { runByHash } from "../script-runner.ts";
import { listenOn } from "../subscriber.ts";
import type { ClientAdapter } from "./adapter.ts";

/** `@upstash/redis`. */
export interface UpstashLike {
  evalsha(sha1: string, keys: string[], args: string[]): Promise<unknown>;
  eval(lua: string, keys: string[], args: string[]): Promise<unknown>;
  createScript(lua: string): unknown;
}

interface Subscribing {
  subscribe(channels: string[]): Subscriber;
}

/** A stream of server-sent events. */
interface Subscriber {
  on(event: "message", listener: (event: { message: unknown }) => void): unknown;
  on(event: "subscribe", listener: () => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  unsubscribe(): Promise<unknown>;
}

export function upstashAdapter(client: UpstashLike): ClientAdapter {
  const runner = runByHash(
    async (sha, keys, args) => client.evalsha(sha, [...keys], [...args]).catch(rethrowClean),
    async (lua, keys, args) => client.eval(lua, [...keys], [...args]).catch(rethrowClean),
  );
  return {
    runner: { runScript: async (...call) => asText(await runner.runScript(...call)) },
    subscribe: has(client, "subscribe")
      ? subscriptionsOf(client as unknown as Subscribing)
      : undefined,
  };
}

/**
 * Undoes the client's JSON.parse of replies. It parses a text into a number only if the number prints as the
 * same text, and no script replies with another JSON value.
 */
function asText(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(asText);
  return typeof reply === "number" ? String(reply) : reply;
}

/** What the client appends to messages: the whole command, with the text of the script. */
const ECHO = ", command was: [";

/**
 * Removes the command from the message of an error: it may be 30 kB long, and words in it look like those of
 * the server. A TypeError becomes an Error: the client has them for a failed request and for a reply without
 * a result, which are temporary.
 */
function rethrowClean(error: unknown): never {
  if (!(error instanceof Error)) throw error;
  const { name, message, cause } = error;
  const [text] = message.split(ECHO, 1);
  throw Object.assign(new Error(text, { cause }), { name });
}

function subscriptionsOf(client: Subscribing): ClientAdapter["subscribe"] {
  return (channel, hear) =>
    listenOn<Subscriber>({
      // the client puts the channel into a URL as it is
      make: () => client.subscribe([encodeURIComponent(channel)]),
      open: (own) =>
        new Promise<void>((resolve, reject) => {
          own.on("subscribe", resolve);
          own.on("error", reject);
          // if the channel has a comma, the client takes what follows it for the message
          own.on("message", ({ message }) => hear(String(message).replace(/^.*,/s, "")));
        }),
      // a stream cannot be asked for a reply, so it is replaced
      check: async () => {
        throw new Error("a stream over HTTP may be dead");
      },
      end: (own) => own.unsubscribe(),
    });
}
