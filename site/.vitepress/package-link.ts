/**
 * Returns the file of the repository, and the anchor, to which a page of one package links in the other package.
 * Such links are absolute, because each package is installed by itself. Undefined for other links.
 */
export function packageLink(href: string): string | undefined {
  const [, folder, file] =
    /^https:\/\/unpkg\.com\/smooth-limiter(?:-(gateway|cli))?\/(.+)$/.exec(href) ?? [];
  if (file === undefined) return undefined;
  return folder === undefined ? file : `${folder}/${file}`;
}
