// A page for each program that other pages link to, and for the licence.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { sourcePage } from "../../.vitepress/source-page.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));

const programsOf = (folder: string) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => `${folder}/${file}`);

function page(source: string, content: string) {
  const name = sourcePage(source).replace("/source/", "");
  return { params: { name }, content: `# ${source}\n\n${content}\n` };
}

function fenced(file: string, language: string): string {
  return `\`\`\`${language}\n${readFileSync(join(root, file), "utf8")}\`\`\``;
}

function listed(folder: string): string {
  return programsOf(folder)
    .map((file) => `- [${file}](${sourcePage(file)})`)
    .join("\n");
}

export default {
  paths() {
    const examples = ["examples", "gateway/examples", "cli/examples"];
    const folders = [...examples, "gateway/test/support/example-host"];
    return [
      page("LICENSE", fenced("LICENSE", "text")),
      ...folders.flatMap(programsOf).map((file) => page(file, fenced(file, "ts"))),
      ...folders
        .filter((folder) => !existsSync(join(root, folder, "README.md")))
        .map((folder) => page(folder, listed(folder))),
    ];
  },
};
