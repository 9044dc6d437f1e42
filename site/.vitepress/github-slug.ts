/** The anchor that GitHub gives a heading. The site uses it too, so that a link to a heading works in both places. */
export function githubSlug(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{M}\p{Nd}\p{Pc}\s-]/gu, "")
    .replaceAll(" ", "-");
}
