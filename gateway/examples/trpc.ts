/** tRPC by cost: a batch of calls costs as many permits as its procedures say. */
import { initTRPC } from "@trpc/server";
import { fetchRequestHandler } from "@trpc/server/adapters/fetch";
import { KeyedLimiter, tokenBucket } from "smooth-limiter";
import { fetchLimit } from "smooth-limiter-gateway/limit";

const { router, procedure } = initTRPC.create();
const api = router({
  hello: procedure.query(() => "hello"),
  report: procedure.query(() => "long"),
});
const COSTS: Readonly<Record<string, number>> = { hello: 1, report: 5 };

const users = KeyedLimiter.create(tokenBucket({ capacity: 10, refill: 10, everyMs: 60_000 }));

const handler = fetchLimit(
  users,
  (req) => fetchRequestHandler({ endpoint: "/trpc", req, router: api }),
  {
    key: (request) => request.headers.get("x-user"),
    // /trpc/hello,report?batch=1
    cost: (request) => {
      const [, , calls = ""] = new URL(request.url).pathname.split("/");
      return calls.split(",").reduce((sum, call) => sum + (COSTS[call] ?? 1), 0);
    },
  },
);

for (const calls of ["hello", "hello,report", "report", "hello"]) {
  const url = `http://localhost/trpc/${calls}?batch=1&input={}`;
  const response = await handler(new Request(url, { headers: { "x-user": "ann" } }));
  console.log(calls, response.status, response.headers.get("ratelimit"));
}
