/**
 * What does the gateway's filter cost a request, and does it matter how many URLs have rules? With 1000 URLs that have a rule each, a
 * request may cost at most twice as much as with one URL. The filter is called directly, without a server.
 */
import { do_not_optimize as keep } from "mitata";
import { gcra, KeyedLimiter } from "smooth-limiter";
import { createGateway, type GatewayRequest, readRules } from "smooth-limiter-gateway";
import { compare } from "../../bench/lib/compare.ts";
import { target, times } from "../../bench/lib/report.ts";

const RATE = 1e9;

/** Returns rules for so many URLs below the same folder, each with its own rule. */
function gatewayOf(urls: number) {
  const entries = Array.from({ length: urls }, (_, i) => ({
    url: `/shop/article-${i}`,
    rules: [{ actor: "device", unit: "second", rpu: RATE }],
  }));
  return createGateway({ rules: readRules(JSON.stringify(entries)) });
}

function request(url: string): GatewayRequest {
  return { method: "GET", url, remoteAddress: "192.0.2.1", header: () => undefined };
}

const one = await gatewayOf(1);
const thousand = await gatewayOf(1000);
const four = await createGateway({
  rules: readRules(
    JSON.stringify(
      ["/", "/shop", "/shop/article-0", "/shop/article-0/pictures"].map((url) => ({
        url,
        rules: [{ actor: "device", unit: "second", rpu: RATE }],
      })),
    ),
  ),
});
const bare = KeyedLimiter.create(gcra({ limit: RATE, periodMs: 1000 }));

const first = request("/shop/article-0/pictures?size=large");
const requests = Array.from({ length: 1000 }, (_, i) =>
  request(`/shop/article-${i}/pictures?size=large`),
);
const encoded = request("/shop/%61rticle-0/pictures?size=large");
const tricky = request("/shop/x/..//article-0/pictures?size=large");
let next = 0;

const ONE = "1 URL, its rule";
const THOUSAND = "1000 URLs, the same request";
const ratio = await compare({
  "a bare decide() of a key": () => keep(bare.for("192.0.2.1").decide()),
  [ONE]: () => keep(one.check(first)),
  [THOUSAND]: () => keep(thousand.check(first)),
  // each call uses another limiter, which is elsewhere in memory
  "1000 URLs, one after the other": () => {
    next = next + 1 < requests.length ? next + 1 : 0;
    return keep(thousand.check(requests[next] ?? first));
  },
  "1000 URLs, a request without a rule": () => keep(thousand.check(request("/other/article-0"))),
  "4 rules for one request": () => keep(four.check(first)),
  "1 URL, encoded": () => keep(one.check(encoded)),
  "1 URL, with several readings": () => keep(one.check(tricky)),
});

const got = ratio(THOUSAND, ONE);
target("1000 URLs, at most 2 × one", got <= 2, times(got));
for (const gateway of [one, thousand, four]) await gateway.close();
