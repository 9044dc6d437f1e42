import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { headlessChromium } from "../programs/chromium.ts";
import type { Children } from "./children.ts";

/** A page that imports the packed core, and posts what it finds to `/report`. Made by `servePage`. */
export interface ServedPage {
  readonly origin: string;
  /** Opens the page in a browser. @returns its report */
  inChromium(children: Children): Promise<unknown>;
  close(): void;
}

/** Serves the page of a folder, the packed core that is installed in it, and `/fine`. */
export async function servePage(folder: string): Promise<ServedPage> {
  const { exports } = JSON.parse(readFileSync("package.json", "utf8")) as {
    exports: Record<string, { import?: string | { default: string } }>;
  };
  const imports = Object.entries(exports).flatMap(([entry, { import: target }]) => {
    const file = typeof target === "object" ? target.default : target;
    return file === undefined ? [] : [[`smooth-limiter${entry.slice(1)}`, `/package/${file}`]];
  });
  const map = JSON.stringify({ imports: Object.fromEntries(imports) });
  const page = `<script type="importmap">${map}</script><script type="module" src="/page.js"></script>`;
  let report: (found: unknown) => void;
  const reported = new Promise<unknown>((resolve) => {
    report = resolve;
  });
  const fileOf = (pathname: string) => {
    const file = join(folder, pathname.replace("/package/", "/node_modules/smooth-limiter/"));
    return existsSync(file) ? readFileSync(file) : undefined;
  };
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    if (pathname === "/report") report(JSON.parse(await text(request)));
    response.setHeader("content-type", pathname === "/" ? "text/html" : "text/javascript");
    response.end(pathname === "/" ? page : pathname === "/fine" ? "fine" : fileOf(pathname));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  return {
    origin,
    async inChromium(children) {
      const { command, env } = await headlessChromium();
      const profile = mkdtempSync(join(tmpdir(), "smooth-limiter-chromium-"));
      const quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
      const args = [...quiet, "--remote-debugging-port=0", `--user-data-dir=${profile}`, origin];
      try {
        return await children.serving(command, args, () => reported, env);
      } finally {
        rmSync(profile, { recursive: true, force: true, maxRetries: 20 });
      }
    },
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
