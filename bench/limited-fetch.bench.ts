/**
 * What does `limitedFetch` cost when there is nothing to wait for? The noise of a network would hide that. So the baseline is a `fetch`
 * that answers at once; it only creates the request and the response, as every `fetch` must.
 */
import pThrottle from "p-throttle";
import { RateLimiter } from "smooth-limiter";
import { limitedFetch } from "smooth-limiter/fetch";
import { compare } from "./lib/compare.ts";
import { target, times } from "./lib/report.ts";

const PLENTY = 1e9;

const instant =
  (headers: Record<string, string>): typeof fetch =>
  async (input, init) => {
    new Request(input, init);
    return new Response("fine", { headers });
  };
const silent = instant({});
const telling = instant({ ratelimit: '"plenty";r=1000000;t=60' });

const limiter = RateLimiter.create(PLENTY);
const limited = limitedFetch(limiter, { fetch: silent });
const limitedByServer = limitedFetch(limiter, { fetch: telling });
const throttled = pThrottle({ limit: PLENTY, interval: 1000 })(silent);
const url = "http://api.test/things";

console.log("a request that is answered at once, never limited");
const ratio = await compare({
  "fetch that answers at once": () => silent(url),
  limitedFetch: () => limited(url),
  "limitedFetch, and the server sends its limit": () => limitedByServer(url),
  "p-throttle": () => throttled(url),
});
for (const [name, most] of [
  ["limitedFetch", 1.5],
  ["limitedFetch, and the server sends its limit", 2.5],
] as const) {
  const ours = ratio(name, "fetch that answers at once");
  target(`${name}: at most ${most} × a fetch that answers at once`, ours <= most, times(ours));
}
process.exit();
