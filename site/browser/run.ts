// The built site in headless Chromium: run.ts [--screenshots <folder>] [words of the checks to run…]

import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { headlessChromium } from "../../test/support/programs/chromium.ts";
import { fromQuery } from "../model/settings.ts";
import { simulate } from "../model/simulate.ts";
import { CONFIGURATIONS } from "../test/configurations.ts";
import { dist, serveSite } from "./server.ts";

const { values, positionals } = parseArgs({
  options: { screenshots: { type: "string" } },
  allowPositionals: true,
});
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const site = await serveSite();
const { command, env } = await headlessChromium();
const browser = await chromium.launch({
  executablePath: command,
  env: env as Record<string, string>,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});

const PHONE = { viewport: { width: 320, height: 640 }, hasTouch: true };
const PLAYGROUND = "/playground.html";
const CONCURRENCY = "/playground-concurrency.html";
const REGIONS = "/playground-regions.html";
const PROGRAMS = [PLAYGROUND, CONCURRENCY, REGIONS];
const WITH_FIGURES = [
  "/docs/how-it-works.html",
  "/docs/choose.html",
  "/docs/guarantees.html",
  "/docs/availability.html",
  "/docs/fair.html",
];

const pages = readdirSync(dist, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".html") && file !== "404.html")
  .sort()
  .map((file) => `/${file}`);
/** The pages that are not programs. */
const documents = pages.filter((path) => !path.startsWith("/source/") && !PROGRAMS.includes(path));

const checks: Readonly<Record<string, () => Promise<void>>> = {
  "every page loads without an error and asks only its own origin, and every link leads somewhere":
    async () => {
      const anchors = new Map<string, readonly string[]>();
      const links: (readonly [path: string, link: string])[] = [];
      await onPage({}, async (page) => {
        for (const path of pages) {
          const response = await page.goto(site.origin + path, { waitUntil: "load" });
          equal(response?.status(), 200, path);
          await page.locator("h1").first().waitFor({ timeout: 20_000 });
          const found = await page.evaluate(() => ({
            ids: Array.from(document.querySelectorAll("[id]"), ({ id }) => id),
            links: Array.from(document.querySelectorAll("a"), ({ href }) => href),
          }));
          anchors.set(path, found.ids);
          for (const link of found.links) links.push([path, link]);
        }
      });
      equal(
        links.filter(([, link]) => !leadsSomewhere(link, anchors)),
        [],
        "dead links",
      );
    },
  "pages fit: no scrolling aside and no tiny pictures on a phone, no table is cut off on a wide screen":
    async () => {
      await onPage(PHONE, async (page) => {
        for (const path of [...documents, ...PROGRAMS]) {
          await page.setViewportSize(PHONE.viewport);
          await ready(page, path);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          if (wide > 0) throw new Error(`${path} is ${wide} px wider than the window`);
          for (const { src, scale } of await picturesOf(page)) {
            const svg = await (await fetch(src)).text();
            const sizes = Array.from(svg.matchAll(/font-size="(\d+)"/g), ([, size]) =>
              Number(size),
            );
            const smallest = Math.min(...sizes) * scale;
            if (!(smallest >= 8))
              throw new Error(`${path}: text of ${smallest} px in ${src.slice(0, 80)}`);
          }
          await page.setViewportSize({ width: 1920, height: 1080 });
          const cut = await page
            .locator(".vp-doc table")
            .evaluateAll((tables) => tables.map((each) => each.scrollWidth - each.clientWidth));
          equal(Math.max(0, ...cut), 0, `${path}: pixels that a table lacks`);
        }
      });
    },
  "pictures follow the system's theme, and the site's own switch": async () => {
    for (const colorScheme of ["light", "dark"] as const) {
      await onPage({ colorScheme, reducedMotion: "reduce" }, async (page) => {
        await ready(page, "/docs/fair.html");
        const picture = page.locator(".vp-doc img");
        const brightness = async () => {
          const png = (await picture.screenshot()).toString("base64");
          return page.evaluate(async (data) => {
            const image = new Image();
            image.src = `data:image/png;base64,${data}`;
            await image.decode();
            const canvas = new OffscreenCanvas(1, 1).getContext("2d");
            canvas?.drawImage(image, -3, -3);
            return canvas?.getImageData(0, 0, 1, 1).data[0];
          }, png);
        };
        const isLight = async () => Number(await brightness()) > 127;
        equal(await isLight(), colorScheme === "light", `${colorScheme}: light`);
        await page.locator(".VPNavBarAppearance button").click();
        equal(await isLight(), colorScheme === "dark", `${colorScheme}, switched: light`);
      });
    }
  },
  "the search finds the page that answers": async () => {
    const pages = {
      slidingLog: "docs/choose",
      "429": "docs/troubleshooting",
      serverless: "docs/serverless",
      lambda: "docs/serverless",
      kubernetes: "docs/kubernetes",
      troubleshooting: "docs/troubleshooting",
      alerts: "docs/production",
      retries: "docs/fetch",
      redirects: "docs/troubleshooting",
      "several processes": "docs/choose-numbers",
      burst: "docs/choose-numbers",
      glossary: "docs/glossary",
    };
    // what users ask, in their words: the answer is among the first five
    const questions = {
      "retry after 429": "docs/fetch",
      "why 429 with limit 10": "docs/troubleshooting",
      "limit per user": "docs/per-key",
      "share a limit between pods": "docs/kubernetes",
      "redis down": "docs/availability",
      "openai tokens per minute": "docs/llm",
      "bytes per second upload": "docs/streams",
      "cancel a waiting call": "docs/recipes",
      "test without waiting": "docs/testing",
      "migrate from bottleneck": "docs/from-bottleneck",
      "cloudflare workers": "docs/serverless",
      bullmq: "docs/bullmq",
      "behind a proxy": "gateway/docs/actors",
      "bundle size": "docs/api",
      "concurrency and rate together": "docs/recipes",
      "pause everything": "docs/recipes",
      "graphql cost": "docs/recipes",
      "100 requests per minute": "docs/choose-numbers",
      "fake time in tests": "docs/testing",
      "stream at 1 MB/s": "docs/streams",
      "express behind nginx": "gateway/docs/actors",
      "fair between tenants": "docs/fair",
      "adaptive concurrency": "docs/concurrency",
      createGateway: "gateway/docs/api/web",
    };
    await onPage({}, async (page) => {
      await ready(page, "/");
      await page.locator(".VPNavBarSearch button").first().click();
      for (const [words, wanted] of Object.entries(pages)) {
        await page.locator("#localsearch-input").fill(words);
        await page.locator(`.VPLocalSearchBox .result[href*="/${wanted}"]`).first().waitFor();
      }
      const notFound: string[] = [];
      for (const [words, wanted] of Object.entries(questions)) {
        await page.locator("#localsearch-input").fill(words);
        const first = page.locator("#localsearch-list > li:nth-child(-n + 5) .result");
        const answer = first.and(page.locator(`[href*="/${wanted}"]`)).first();
        await answer.waitFor({ timeout: 5000 }).catch(async () => {
          const found = await first.evaluateAll((links) => links.map((each) => `${each}`));
          notFound.push(`"${words}" finds ${found.join(", ")}, not ${wanted}`);
        });
      }
      equal(notFound, [], "questions without an answer");
    });
  },
  "each configuration: the numbers of the page are those of Node": async () => {
    await onPage({}, async (page) => {
      for (const query of CONFIGURATIONS) {
        await ready(page, `${PLAYGROUND}?${query}`);
        equal(await tableOf(page), await tableInNode(query), query);
      }
    });
  },
  "who never waits has no chart of waiting calls": async () => {
    await onPage({}, async (page) => {
      for (const [verb, count] of [
        ["wait", 1],
        ["try", 0],
      ] as const) {
        await ready(page, `${PLAYGROUND}?algorithm=gcra&verb=${verb}`);
        await tableOf(page);
        equal(await page.getByText("Waiting", { exact: true }).count(), count, verb);
      }
    });
  },
  "changes are in the URL, and the URL brings them back": async () => {
    await onPage({}, async (page) => {
      await ready(page, PLAYGROUND);
      await page.getByLabel("algorithm", { exact: true }).selectOption("gcra");
      await page.getByLabel("permits per second").fill("7");
      await page.getByLabel("a caller").selectOption("try");
      await page.waitForURL(/algorithm=gcra&rate=7&.*verb=try/);
      const shown = await tableOf(page);
      await page.reload();
      equal(await page.getByLabel("permits per second").inputValue(), "7", "the slider");
      equal(await tableOf(page), shown, "the table");
    });
  },
  "the code can be copied": async () => {
    await onPage({ permissions: ["clipboard-read", "clipboard-write"] }, async (page) => {
      await ready(page, `${PLAYGROUND}?algorithm=gcra&rate=3&burst=2&verb=try`);
      const copied = async (name: string) => {
        await page.getByRole("button", { name: `Copy ${name}` }).click();
        return page.evaluate(() => navigator.clipboard.readText());
      };
      matches(await copied("TypeScript"), /gcra\(\{ limit: 3, periodMs: 1000, burst: 2 \}\)/);
      matches(await copied("YAML rule"), /algo: gcra/);
      matches(
        await copied("link"),
        /^http.*playground.html\?algorithm=gcra&rate=3&burst=2&verb=try/,
      );
    });
  },
  "a concurrency limit: the limit is in the words, the URL and the code, on a wide screen and a phone":
    async () => {
      for (const options of [{}, PHONE]) {
        await onPage(options, async (page) => {
          await ready(page, CONCURRENCY);
          const words = page.locator(".pg-summary");
          await words.filter({ hasText: "The limit follows latency" }).waitFor();
          await page.getByLabel("the limit is").selectOption("fixed");
          await page.getByLabel("the limit", { exact: true }).fill("5");
          await words.filter({ hasText: "15 of its workers have nothing to do." }).waitFor();
          await page.locator(".pg-code", { hasText: "ConcurrencyLimiter.create(5)" }).waitFor();
          await page.waitForURL(/limit=fixed&server=queues.*&fixed=5/);
          const shown = await words.textContent();
          await page.reload();
          await words.filter({ hasText: "15 of its workers have nothing to do." }).waitFor();
          equal(await words.textContent(), shown, "the words after a reload");
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          equal(wide, 0, "pixels wider than the window");
        });
      }
    },
  "regions: their parts are in the words, the URL and the code, on a wide screen and a phone":
    async () => {
      for (const options of [{}, PHONE]) {
        await onPage(options, async (page) => {
          await ready(page, REGIONS);
          const words = page.locator(".pg-summary");
          await words.filter({ hasText: "Each region decides by itself" }).waitFor();
          await page.getByLabel("from 10 s to 20 s").selectOption("away");
          await page.getByLabel("reserve, % of the limit").fill("60");
          await words.filter({ hasText: "From 10 s on the home is away" }).waitFor();
          await words.filter({ hasText: "has 20 %" }).waitFor();
          await page.locator(".pg-code", { hasText: "reserve: 0.6," }).waitFor();
          await page.waitForURL(/event=away.*&reserve=60/);
          await page.reload();
          await words.filter({ hasText: "From 10 s on the home is away" }).waitFor();
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          equal(wide, 0, "pixels wider than the window");
        });
      }
    },
  "the landing page has code, and a limiter that runs and says why eleven passed": async () => {
    await onPage({}, async (page) => {
      await ready(page, "/");
      await page.locator("pre", { hasText: "RateLimiter.create(10)" }).waitFor();
      const figure = page.locator('[data-figure="burst"]');
      await figure.locator(".pg-summary", { hasText: "11 passed at once: 10 permits" }).waitFor();
      await figure.getByLabel("permits per second").fill("4");
      await figure.locator(".pg-summary", { hasText: "5 passed at once: 4 permits" }).waitFor();
    });
  },
  "on a phone the first chart stays in view while a slider moves": async () => {
    await onPage(PHONE, async (page) => {
      await ready(page, `${PLAYGROUND}?algorithm=gcra&traffic=bursts`);
      const slider = page.getByLabel("time shown, seconds");
      await slider.scrollIntoViewIfNeeded();
      await slider.fill("12");
      const chart = page.getByLabel("When requests arrived, were granted and were refused");
      // while the page draws the chart again there is none
      const box = await patiently(() => chart.boundingBox());
      if (box.y < 0 || box.y + box.height > PHONE.viewport.height)
        throw new Error(`the chart is at ${JSON.stringify(box)}`);
    });
  },
  "the keyboard draws traffic, moves the time and sends live requests": async () => {
    await onPage({}, async (page) => {
      await ready(page, `${PLAYGROUND}?algorithm=gcra&traffic=drawn&bars=0&seconds=4`);
      const bars = page.locator(".pg-bars");
      await bars.focus();
      for (const key of ["ArrowRight", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown"]) {
        await page.keyboard.press(key);
      }
      equal(await bars.getAttribute("aria-valuetext"), "part 2 of 40: 2 requests", "the bars");
      await page.waitForURL(/bars=02/);
      await page.locator(".pg-summary", { hasText: "2 arrived" }).waitFor();
      await page.getByLabel("Time shown, ms").focus();
      await page.keyboard.press("Home");
      await page.locator(".pg-summary", { hasText: "After 0.00 s: 0 arrived" }).waitFor();
      await page.getByRole("button", { name: "Run live" }).press("Enter");
      await page.getByRole("button", { name: "Send a request" }).press("Enter");
      await page.locator(".pg-summary", { hasText: "3 arrived" }).waitFor();
      await page.getByRole("button", { name: "Stop" }).press("Enter");
      await page.locator(".pg-summary", { hasText: "After 4.00 s: 2 arrived" }).waitFor();
    });
  },
  "a fair limiter: the keyboard chooses it, and its shares are in words, colours, the URL and the code":
    async () => {
      await onPage({}, async (page) => {
        const query = "algorithm=smoothBursty&rate=10&burstSeconds=0&traffic=three&rps=9&size=20";
        await ready(page, `${PLAYGROUND}?${query}`);
        const oneQueue = await tableOf(page);
        await page.getByLabel("tenants wait in").focus();
        await page.keyboard.press("ArrowDown");
        await page.waitForURL(/queue=fair/);
        await page.locator(".pg-code", { hasText: "{ order: fairShares() }" }).waitFor();
        await page.locator(".pg-code", { hasText: "{ share: tenant }" }).waitFor();
        const fair = await tableOf(page);
        equal(fair, await tableInNode(`${query}&queue=fair`), "the fair limiter");
        equal(JSON.stringify(fair) === JSON.stringify(oneQueue), false, "the same with one queue");
        await page.getByLabel("weight of tenant b").focus();
        await page.keyboard.press("ArrowRight");
        await page.waitForURL(/weight=2/);
        equal(await tableOf(page), await tableInNode(`${query}&queue=fair&weight=2`), "the weight");
        await page.getByLabel("Time shown, ms").fill("4000");
        await page
          .locator(".pg-summary", { hasText: /a \d+.*b \d+.*c \d+ \(\d+ waiting\)/ })
          .waitFor();
        const colours = await page
          .getByLabel("Permits granted to each tenant over time")
          .locator(".pg-share")
          .evaluateAll((lines) => lines.map((each) => getComputedStyle(each).stroke));
        equal(new Set(colours).size, 3, "colours");
        await page.reload();
        equal(await page.getByLabel("tenants wait in").inputValue(), "fair", "after a reload");
      });
    },
  "a slider that is dragged does not pile up simulations, and the URL has its last value":
    async () => {
      await onPage({}, async (page) => {
        await ready(page, `${PLAYGROUND}?algorithm=gcra&traffic=steady&rps=50&seconds=20`);
        const last = await page.getByLabel("permits per second").evaluate((slider) => {
          const input = slider as HTMLInputElement;
          for (let value = 1; value <= 90; value += 0.25) {
            input.value = String(value);
            input.dispatchEvent(new Event("input"));
          }
          return input.value;
        });
        await page.waitForURL(new RegExp(`rate=${last}&`));
        equal(
          await tableOf(page),
          await tableInNode(new URL(page.url()).searchParams.toString()),
          "the table",
        );
      });
    },
  "a pause is read out by screen readers, and the frames before it are not": async () => {
    await onPage({}, async (page) => {
      await ready(page, `${PLAYGROUND}?algorithm=gcra`);
      const live = (state: string) => page.locator(`.pg-summary[aria-live="${state}"]`).waitFor();
      await page.getByRole("button", { name: "Play" }).press("Space");
      await live("off");
      await page.getByRole("button", { name: "Pause" }).press("Space");
      await live("polite");
    });
  },
  "a live run ends by itself, and can be read afterwards": async () => {
    await onPage({}, async (page) => {
      await ready(
        page,
        `${PLAYGROUND}?algorithm=gcra&rate=1&burst=0&traffic=steady&rps=2&seconds=2`,
      );
      await page.getByRole("button", { name: "Run live" }).click();
      await page.getByRole("button", { name: "Send a request" }).click();
      equal(await page.getByLabel("Time shown, ms").isDisabled(), true, "the time while live");
      await page.getByRole("button", { name: "Run live" }).waitFor();
      equal(
        (await tableOf(page)).map(([caller]) => caller).sort(),
        ["a", "a", "a", "a", "you"],
        "callers",
      );
      await page.getByLabel("Time shown, ms").focus();
      await page.keyboard.press("Home");
      await page.locator(".pg-summary", { hasText: "After 0.00 s" }).waitFor();
    });
  },
  "an access log of 20 000 lines is dropped beside the playground, and any part of it is shown":
    async () => {
      await onPage({}, async (page) => {
        await ready(page, `${PLAYGROUND}?algorithm=gcra&rate=5`);
        const data = await page.evaluateHandle(() => {
          const lines = Array.from({ length: 20_000 }, (_, i) => {
            const time = new Date(Date.UTC(2026, 9, 10) + Math.floor(i / 5) * 1000).toISOString();
            return `192.0.2.${i % 7} ${time.slice(0, 19)}Z`;
          });
          const transfer = new DataTransfer();
          transfer.items.add(new File([lines.join("\n")], "access.log"));
          return transfer;
        });
        await page.locator(".VPNav").dispatchEvent("drop", { dataTransfer: data });
        await page.locator(".pg-note", { hasText: "20000 requests in 4000 s, 0 lines" }).waitFor();
        await page.locator(".pg-summary", { hasText: "300 arrived" }).waitFor();
        await page.getByLabel("begins at this second of the log").fill("3990");
        await page.locator(".pg-summary", { hasText: "50 arrived" }).waitFor();
      });
    },
  "a report of replay --json shows its charts, and other JSON what it lacks": async () => {
    await onPage({}, async (page) => {
      await ready(page, `${PLAYGROUND}?traffic=log&algorithm=gcra`);
      const counts = { requests: 3, passed: 2, waited: 0, refused: 1 };
      const points = { stepMs: 1000, startMs: 1.7e12, peaks: [3] };
      const parts = { passed: [2], waited: [0], refused: [1] };
      const rule = { ...counts, name: "all <b>", actor: "all", rpu: 2, periodMs: 1000 };
      const rules = [{ ...rule, points: { ...points, counts: parts } }];
      const report = { ...counts, firstMs: 1.7e12, lastMs: 1.7e12, rules };
      const replayed = { log: "a.log", rulesFrom: "r.yaml", zoneMinutes: 0, report };
      const choose = (value: unknown) =>
        page.locator("#pg-log").setInputFiles({
          name: "report.json",
          mimeType: "application/json",
          buffer: Buffer.from(JSON.stringify(value, null, 2)),
        });
      await choose(replayed);
      await page.locator(".pg-summary", { hasText: "a.log by r.yaml: 3 requests" }).waitFor();
      await page.locator("figcaption", { hasText: "all <b>: 3 requests" }).waitFor();
      await page.locator("svg.chart .chart-refused").waitFor();
      await page.locator(".pg-code").waitFor({ state: "hidden" });
      await choose({ findings: [] });
      await page.locator(".pg-note", { hasText: "it has no report.rules" }).waitFor();
      await page.locator(".pg-code").waitFor();
    });
  },
  "an access log is replayed, and is not in the URL": async () => {
    await onPage({}, async (page) => {
      await ready(page, `${PLAYGROUND}?traffic=log&algorithm=fixedWindow&limit=1`);
      const line = (second: number, who: string) =>
        `${who} - - [10/Oct/2026:13:55:0${second} +0000] "GET / HTTP/1.1" 200 5`;
      const text = [line(1, "192.0.2.1"), line(1, "192.0.2.2"), line(3, "192.0.2.1")].join("\n");
      await page.locator("#pg-log").setInputFiles({
        name: "access.log",
        mimeType: "text/plain",
        buffer: Buffer.from(text),
      });
      await page.locator(".pg-note", { hasText: "3 requests in 3 s" }).waitFor();
      await page.locator(".pg-summary", { hasText: "3 arrived" }).waitFor();
      equal(page.url().includes("192"), false, "the URL");
    });
  },
  "the figures of the docs move": async () => {
    await onPage({}, async (page) => {
      const found: (string | null)[] = [];
      for (const path of WITH_FIGURES) {
        await ready(page, path);
        await page.locator("[data-figure]").first().waitFor();
        for (const figure of await page.locator("[data-figure]").all()) {
          found.push(await figure.getAttribute("data-figure"));
          await figure.scrollIntoViewIfNeeded();
          await figure.locator("svg").first().waitFor({ timeout: 20_000 });
          const before = await figure.locator(".pg-summary").textContent();
          const options = await figure.locator("option").all();
          await figure.locator("select").selectOption({ index: options.length - 1 });
          await page.waitForFunction(([element, text]) => element?.textContent !== text, [
            await figure.locator(".pg-summary").elementHandle(),
            before,
          ] as const);
        }
      }
      equal(
        found.sort(),
        [
          "algorithms",
          "cancel",
          "cancel",
          "double-burst",
          "double-burst",
          "fair",
          "keys",
          "prepay",
          "processes",
          "redis-away",
          "warming-up",
          "warming-up",
        ],
        "figures",
      );
    });
  },
  "axe finds nothing serious": async () => {
    for (const colorScheme of ["light", "dark"] as const) {
      await onPage({ colorScheme, reducedMotion: "reduce" }, async (page) => {
        for (const path of [
          "/",
          ...WITH_FIGURES,
          CONCURRENCY,
          REGIONS,
          `${PLAYGROUND}?traffic=drawn`,
          `${PLAYGROUND}?traffic=tenants&compare=gcra&algorithm=smoothWarmingUp`,
          `${PLAYGROUND}?traffic=three&queue=fair&compare=queue`,
        ]) {
          await ready(page, path);
          await page.evaluate(axe);
          const found = await page.evaluate(async () =>
            (await (globalThis as unknown as AxeWindow).axe.run(document)).violations
              .filter(({ impact }) => impact === "serious" || impact === "critical")
              .map(
                ({ id, nodes }) =>
                  `${id}: ${nodes
                    .slice(0, 3)
                    .map(({ html }) => html.slice(0, 200))
                    .join(" | ")}`,
              ),
          );
          equal(found, [], `${colorScheme} ${path}`);
        }
      });
    }
  },
};

interface AxeWindow {
  axe: {
    run(
      root: Document,
    ): Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }>;
  };
}

let failed = 0;
let passed = 0;
try {
  for (const [name, check] of Object.entries(checks)) {
    if (positionals.length > 0 && !positionals.some((word) => name.includes(word))) continue;
    const began = performance.now();
    try {
      await check();
      passed += 1;
      console.log(`✔ ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.error(`✘ ${name}\n${error instanceof Error ? error.message : error}\n`);
    }
  }
  if (values.screenshots !== undefined) await takeScreenshots(values.screenshots, browser);
} finally {
  await browser.close();
  site.close();
}
console.log(`\n${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;

/** Runs a check on a page of its own. An error in the console or a request elsewhere fails it. */
async function onPage(
  options: BrowserContextOptions,
  check: (page: Page) => Promise<void>,
): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const complaints: string[] = [];
  try {
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()))
        complaints.push(`${page.url()}: ${message.text()}`);
    });
    page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error}`));
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(`${site.origin}/`) && !/^(data|blob):/.test(url))
        complaints.push(`asks ${url}`);
    });
    await check(page);
  } finally {
    await context.close();
  }
  equal(complaints, [], "complaints of the browser");
}

/** Returns whether a link leads to a page of the site, and to an anchor of it; others are not followed. */
function leadsSomewhere(link: string, anchors: ReadonlyMap<string, readonly string[]>): boolean {
  if (link === "") return false;
  const { origin, pathname, hash } = new URL(link);
  if (origin !== site.origin) return true;
  const ids = anchors.get(pathname.endsWith("/") ? `${pathname}index.html` : pathname);
  return ids !== undefined && (hash === "" || ids.includes(decodeURIComponent(hash.slice(1))));
}

/** The pictures of a page, and how much smaller than drawn they are shown. */
async function picturesOf(page: Page): Promise<{ src: string; scale: number }[]> {
  const pictures = page.locator(".vp-doc img");
  await pictures.evaluateAll((images) =>
    Promise.all(images.map((image) => (image as HTMLImageElement).decode())),
  );
  return pictures.evaluateAll((images) =>
    (images as HTMLImageElement[]).map(({ src, width, naturalWidth }) => {
      return { src, scale: width / naturalWidth };
    }),
  );
}

/** Opens a page, and waits until its figures or the playground are there. */
async function ready(page: Page, path: string): Promise<void> {
  await page.goto(site.origin + path, { waitUntil: "load" });
  await page.locator("h1").first().waitFor();
  if (PROGRAMS.some((program) => path.startsWith(program)))
    await page.locator("svg.chart").first().waitFor();
}

/** Looks until there is something, for 5 s. */
async function patiently<T>(look: () => Promise<T | null>): Promise<T> {
  for (let tries = 0; tries < 100; tries++) {
    const found = await look();
    if (found !== null) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("there is nothing after 5 s");
}

/** The playground's table of all calls. */
async function tableOf(page: Page): Promise<string[][]> {
  await page.locator('.pg-results[aria-busy="false"]').waitFor();
  return page
    .locator(".pg-numbers tbody tr")
    .evaluateAll((rows) =>
      rows.map((row) => Array.from(row.children, (cell) => cell.textContent ?? "")),
    );
}

async function tableInNode(query: string): Promise<string[][]> {
  const { calls } = await simulate(fromQuery(query));
  return calls.map(({ tenant, atMs, startedMs, refusedMs }) =>
    [tenant, atMs, startedMs, refusedMs].map((cell) => String(cell ?? "")),
  );
}

async function takeScreenshots(folder: string, { newContext }: Browser): Promise<void> {
  const looks: Readonly<Record<string, BrowserContextOptions>> = {
    light: { viewport: { width: 1280, height: 1000 }, colorScheme: "light" },
    dark: { viewport: { width: 1280, height: 1000 }, colorScheme: "dark" },
    phone: { ...PHONE, colorScheme: "light" },
  };
  const shown = {
    home: "/",
    playground: `${PLAYGROUND}?algorithm=smoothWarmingUp&traffic=tenants&compare=gcra`,
    drawn: `${PLAYGROUND}?traffic=drawn`,
    concurrency: CONCURRENCY,
    regions: REGIONS,
    shares: `${PLAYGROUND}?traffic=three&queue=fair&compare=queue`,
  };
  for (const [look, options] of Object.entries(looks)) {
    const context = await newContext.call(browser, { ...options, reducedMotion: "reduce" });
    const page = await context.newPage();
    for (const [name, path] of Object.entries(shown)) {
      await ready(page, path);
      await page.screenshot({ path: `${folder}/${name}-${look}.png`, fullPage: name !== "home" });
    }
    for (const path of WITH_FIGURES) {
      await ready(page, path);
      for (const figure of await page.locator("[data-figure]").all()) {
        const name = await figure.getAttribute("data-figure");
        await figure.scrollIntoViewIfNeeded();
        await figure.locator("svg").first().waitFor();
        await figure.screenshot({ path: `${folder}/${name}-${look}.png` });
      }
    }
    await context.close();
  }
}

function equal(found: unknown, wanted: unknown, what: string): void {
  const [a, b] = [found, wanted].map((value) => JSON.stringify(value, null, 1));
  if (a !== b) throw new Error(`${what}: found ${a?.slice(0, 1500)}\nwanted ${b?.slice(0, 1500)}`);
}

function matches(text: string, pattern: RegExp): void {
  if (!pattern.test(text)) throw new Error(`${text} does not match ${pattern}`);
}
