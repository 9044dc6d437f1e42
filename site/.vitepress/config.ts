// The site is made of the repository's own pages: nothing of them is copied into this folder.

import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import {
  type DefaultTheme,
  defineConfigWithTheme,
  type MarkdownEnv,
  type MarkdownRenderer,
} from "vitepress";
import { githubSlug } from "./github-slug.ts";
import { sidebar } from "./sidebar.ts";
import { sourcePage } from "./source-page.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

const logo = `data:image/svg+xml,${encodeURIComponent(readFileSync(join(root, "site/logo.svg"), "utf8"))}`;
/** Where the source is published; the workflow that publishes the site sets it. */
const repository = process.env.SITE_REPOSITORY;
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

/** Pages lie outside of this folder, where Vite does not find this package. */
const externalVue = {
  name: "external vue",
  enforce: "pre",
  resolveId(id: string, _importer: string | undefined, { ssr }: { ssr?: boolean }) {
    return ssr && /^vue(\/|$)/.test(id) ? { id, external: true } : null;
  },
} as const;

export default defineConfigWithTheme<DefaultTheme.Config & { repository?: string | undefined }>({
  title: "smooth-limiter",
  description: "A rate limiter for TypeScript that can wait",
  lang: "en",
  base: process.env.SITE_BASE ?? "/",
  srcDir: "..",
  // every other Markdown file of the repository is a page
  srcExclude: ["test/**", "gateway/test/**", "cli/test/**", "coverage/**", "site/*.md"],
  rewrites: { "site/pages/:page*": ":page*" },
  outDir: "dist",
  cacheDir: "../.cache/vitepress",
  head: [["link", { rel: "icon", type: "image/svg+xml", href: logo }]],
  markdown: {
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    languageAlias: { caddyfile: "text" },
    anchor: { slugify: githubSlug },
    config: (md) => {
      md.use(sourceLinks).use(figures);
    },
  },
  vite: { plugins: [externalVue] },
  themeConfig: {
    logo,
    search: { provider: "local" },
    outline: [2, 3],
    repository,
    socialLinks: repository === undefined ? [] : [{ icon: "github", link: repository }],
    nav: [
      { text: "Get started", link: "/docs/get-started" },
      { text: "Docs", link: "/docs/README" },
      { text: "Playground", link: "/playground" },
      { text: "HTTP servers", link: "/gateway/README" },
      { text: version, link: "/CHANGELOG" },
    ],
    sidebar,
  },
});

/** Leads links to programs to their pages: they are written for a repository. */
function sourceLinks(md: MarkdownRenderer): void {
  md.core.ruler.push("source links", ({ tokens, env }) => {
    for (const token of tokens.flatMap(({ children }) => children ?? [])) {
      const href = token.type === "link_open" ? token.attrGet("href") : null;
      if (href !== null) token.attrSet("href", pageOf(href, env as MarkdownEnv));
    }
  });
}

function pageOf(href: string, { path, realPath }: MarkdownEnv): string {
  if (/^[a-z]+:|^[#/]/.test(href)) return href;
  const [file = "", hash] = href.split("#");
  const source = relative(root, join(dirname(realPath ?? path), file));
  const anchor = hash === undefined ? "" : `#${hash}`;
  if (source === "examples") return "/examples/README";
  if (source.endsWith(".md") || source.endsWith(".svg")) return href;
  return `${sourcePage(source.replace(/.*LICENSE$/, "LICENSE"))}${anchor}`;
}

/** Puts a moving figure where a page has the comment `<!-- figure: name -->`. */
function figures(md: MarkdownRenderer): void {
  const { html_block } = md.renderer.rules;
  md.renderer.rules.html_block = (tokens, i, ...rest) => {
    const [, name] = /^<!-- figure: ([\w-]+) -->/.exec(tokens[i]?.content ?? "") ?? [];
    if (name !== undefined) return `<LiveFigure name="${name}" />\n`;
    return html_block?.(tokens, i, ...rest) ?? "";
  };
}
