import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

export interface Reply {
  readonly status: number;
  readonly headers?: Record<string, string> | undefined;
  readonly body?: string | undefined;
}

/** A real server on the loopback interface, and the most connections it has had open at once. */
export async function httpServer(answer: (request: IncomingMessage) => Reply | Promise<Reply>) {
  const server = createServer(async (request, response) => {
    const { status, headers, body } = await answer(request);
    response.writeHead(status, headers).end(body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    connections: () =>
      new Promise<number>((resolve) => {
        server.getConnections((_, count) => resolve(count));
      }),
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}
