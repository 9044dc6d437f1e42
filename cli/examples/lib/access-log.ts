/** Generates access logs in the combined format. */

export interface Made {
  readonly startMs?: number;
  readonly perSecond: number;
  /** The number of clients. The first ones send far more requests than the last. */
  readonly clients: number;
  readonly paths: readonly string[];
}

/** Yields the lines of a log. The same arguments always give the same lines. */
export function* accessLog(lines: number, made: Made): Generator<string> {
  const { startMs = Date.UTC(2026, 0, 5, 8), perSecond, clients, paths } = made;
  let seed = 1;
  const random = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  for (let i = 0; i < lines; i++) {
    const client = Math.floor(clients * random() ** 3);
    const address = `10.${client >> 16}.${(client >> 8) & 255}.${client & 255}`;
    const user = client % 3 === 0 ? `user${client}` : "-";
    const path = paths[Math.floor(paths.length * random())] ?? "/";
    const time = clfTime(startMs + 1000 * Math.floor(i / perSecond));
    yield `${address} - ${user} [${time}] "GET ${path} HTTP/1.1" 200 1234 "-" "Mozilla/5.0"\n`;
  }
}

const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

/** Formats a time as 05/Jan/2026:08:00:00 +0000. */
function clfTime(ms: number): string {
  const [date = "", time = ""] = new Date(ms).toISOString().split("T");
  const [year, month, day] = date.split("-");
  return `${day}/${MONTHS[Number(month) - 1]}/${year}:${time.slice(0, 8)} +0000`;
}
