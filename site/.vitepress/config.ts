// The site is made of the repository's own pages: nothing of them is copied into this folder.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig, type MarkdownEnv, type MarkdownRenderer } from "vitepress";
import { githubSlug } from "./github-slug.ts";
import { packageLink } from "./package-link.ts";
import { sourcePage } from "./source-page.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Pages lie outside of this folder, where Vite does not find this package. */
const externalVue = {
  name: "external vue",
  enforce: "pre",
  resolveId(id: string, _importer: string | undefined, { ssr }: { ssr?: boolean }) {
    return ssr && /^vue(\/|$)/.test(id) ? { id, external: true } : null;
  },
} as const;

export default defineConfig({
  title: "smooth-limiter",
  description: "A rate limiter for TypeScript that can wait",
  lang: "en",
  base: process.env.SITE_BASE ?? "/",
  srcDir: "..",
  // every other Markdown file of the repository is a page
  srcExclude: ["test/**", "gateway/test/**", "cli/test/**", "coverage/**", "site/*.md"],
  rewrites: {
    "README.md": "index.md",
    "site/pages/:page*": ":page*",
  },
  outDir: "dist",
  cacheDir: "../.cache/vitepress",
  head: [["link", { rel: "icon", href: "data:," }]],
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
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Docs", link: "/docs/README" },
      { text: "Playground", link: "/playground" },
      { text: "Gateway", link: "/gateway/README" },
      { text: "Examples", link: "/examples/README" },
    ],
    sidebar: [
      {
        text: "smooth-limiter",
        items: [
          { text: "Playground", link: "/playground" },
          ...pages("docs", (name) => !isMigration(name)),
        ],
      },
      { text: "Gateway", items: [...pages("gateway"), ...pages("gateway/docs")] },
      { text: "Command line", items: [...pages("cli"), ...pages("cli/docs")] },
      {
        text: "The project",
        items: [
          ...pages("examples"),
          ...pages("", (name) => name !== "README.md"),
          ...pages("bench"),
        ],
      },
    ],
  },
});

function isMigration(name: string): boolean {
  return name.startsWith("from-");
}

/** The pages of a folder, by their headings; its index comes first. */
function pages(folder: string, isWanted = (_name: string) => true) {
  return readdirSync(join(root, folder))
    .filter((name) => name.endsWith(".md") && isWanted(name))
    .sort((a, b) => Number(b === "README.md") - Number(a === "README.md") || a.localeCompare(b))
    .map((name) => {
      const [, text = name] =
        /^# (.+)$/m.exec(readFileSync(join(root, folder, name), "utf8")) ?? [];
      return {
        text: text.replaceAll("`", ""),
        link: `/${join(folder, name.replace(/\.md$/, ""))}`,
      };
    });
}

/** Leads links to the README, to programs and to the other package to their pages: they are written for a repository. */
function sourceLinks(md: MarkdownRenderer): void {
  md.core.ruler.push("source links", ({ tokens, env }) => {
    for (const token of tokens.flatMap(({ children }) => children ?? [])) {
      const href = token.type === "link_open" ? token.attrGet("href") : null;
      if (href !== null) token.attrSet("href", pageOf(href, env as MarkdownEnv));
    }
  });
}

function pageOf(href: string, { path, realPath }: MarkdownEnv): string {
  const linked = packageLink(href);
  if (linked !== undefined) return `/${linked}`;
  if (/^[a-z]+:|^[#/]/.test(href)) return href;
  const [file = "", hash] = href.split("#");
  const source = relative(root, join(dirname(realPath ?? path), file));
  const anchor = hash === undefined ? "" : `#${hash}`;
  if (source === "README.md") return `/${anchor}`;
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
