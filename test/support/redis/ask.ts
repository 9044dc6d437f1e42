// The part of Redis' protocol that the harness itself needs, so that it depends on no client.

import { connect, type NetConnectOpts } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

export type Reply = string | number | null | Reply[];

// Kept from the start, because tests replace the global timers by fake ones.
const { now } = Date;

/**
 * Sends one command on a connection of its own. Text is taken as Latin-1.
 *
 * @throws Error with Redis' own message for an error reply; Error when the connection fails or no
 *   answer comes within `limitMs`
 */
export function ask(to: NetConnectOpts, command: string[], limitMs = 10_000): Promise<Reply> {
  return new Promise((resolve, reject) => {
    let received = "";
    const socket = connect(to);
    socket.setEncoding("latin1").setTimeout(limitMs);
    socket.on("connect", () => {
      const words = command.map((word) => `$${Buffer.byteLength(word, "latin1")}\r\n${word}\r\n`);
      socket.write(`*${words.length}\r\n${words.join("")}`, "latin1");
    });
    socket.on("data", (text) => {
      received += text;
      const parsed = parse(received, 0);
      if (parsed === undefined) return;
      socket.destroy();
      if (parsed.reply instanceof Error) reject(parsed.reply);
      else resolve(parsed.reply);
    });
    const fail = (why: string) => () => {
      socket.destroy();
      reject(new Error(`${command[0]}: ${why}`));
    };
    socket.on("timeout", fail(`no answer within ${limitMs} ms`));
    socket.on("end", fail("the connection was closed"));
    socket.on("error", (error) => fail(error.message)());
  });
}

/** Returns the reply that begins at `start`, or undefined while it is incomplete. An error inside an array becomes its text. */
function parse(text: string, start: number): { reply: Reply | Error; end: number } | undefined {
  const eol = text.indexOf("\r\n", start);
  if (eol < 0) return undefined;
  const head = text.slice(start + 1, eol);
  let end = eol + 2;
  switch (text[start]) {
    case "-":
      return { reply: new Error(head), end };
    case ":":
      return { reply: Number(head), end };
    case "$": {
      if (head === "-1") return { reply: null, end };
      const after = end + Number(head);
      if (text.length < after + 2) return undefined;
      return { reply: text.slice(end, after), end: after + 2 };
    }
    case "*": {
      const reply: Reply[] = [];
      while (reply.length < Number(head)) {
        const item = parse(text, end);
        if (item === undefined) return undefined;
        reply.push(item.reply instanceof Error ? item.reply.message : item.reply);
        end = item.end;
      }
      return { reply, end };
    }
    default:
      return { reply: head, end };
  }
}

/**
 * Calls `holds` every `everyMs` until it returns true. An error that it throws counts as false.
 *
 * @throws Error that names `what` when that takes longer than `limitMs`, with the message of the last error
 */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  { everyMs = 20, limitMs = 20_000 } = {},
): Promise<void> {
  const deadline = now() + limitMs;
  for (let last = ""; ; await sleep(everyMs)) {
    try {
      if (await holds()) return;
    } catch (error) {
      last = `: ${error instanceof Error ? error.message : error}`;
    }
    if (now() > deadline) throw new Error(`${what}: not within ${limitMs} ms${last}`);
  }
}
