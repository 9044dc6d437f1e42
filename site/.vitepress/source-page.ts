/** The page of a file or folder that is no Markdown, by its path in the repository. */
export function sourcePage(path: string): string {
  return `/source/${path.replace(/\.ts$/, "").replaceAll("/", "-")}`;
}
