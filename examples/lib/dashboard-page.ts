/** The page of the dashboard: it listens to `events`, and draws a card for each limiter. Nothing is loaded from elsewhere. */
export const DASHBOARD_PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Limiters</title>
<style>
  :root { color-scheme: light dark; font: 16px system-ui, sans-serif }
  body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
  main { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)) }
  section { border: 1px solid color-mix(in srgb, currentcolor 40%, transparent); border-radius: 8px; padding: 1rem }
  section.away { border-color: #d9580d; border-width: 2px }
  h2 { margin: 0 0 .5rem }
  dl { display: grid; grid-template-columns: 1fr auto; gap: .2rem 1rem; margin: .5rem 0 0; font-variant-numeric: tabular-nums }
  dd { margin: 0; text-align: right }
  svg { width: 100%; height: 60px; border-bottom: 1px solid color-mix(in srgb, currentcolor 40%, transparent) }
  path { fill: none; stroke: #3b7dd8; stroke-width: 2; vector-effect: non-scaling-stroke }
</style>
<h1>Limiters</h1>
<p id="link" role="status">connecting</p>
<main></main>
<script type="module">
  const main = document.querySelector("main");
  const link = document.querySelector("#link");
  const cards = new Map();
  const rates = new Map();
  const NAMES = {
    rate: "granted per second", waiting: "waiting now", longestWaitMs: "longest wait, ms",
    refused: "refused", outages: "outages", store: "store",
  };

  function cardOf(name) {
    const known = cards.get(name);
    if (known) return known;
    const card = document.createElement("section");
    card.append(document.createElement("h2"));
    card.firstChild.textContent = name;
    card.insertAdjacentHTML("beforeend", '<svg viewBox="0 0 60 100" preserveAspectRatio="none" aria-hidden="true"><path/></svg><dl></dl>');
    main.append(card);
    cards.set(name, card);
    return card;
  }

  const events = new EventSource("events");
  events.onopen = () => { link.textContent = "live" };
  events.onerror = () => { link.textContent = "connection lost, trying again" };
  events.onmessage = ({ data }) => {
    for (const [name, now] of Object.entries(JSON.parse(data))) {
      const card = cardOf(name);
      card.className = now.store === "unavailable" ? "away" : "";
      card.querySelector("dl").replaceChildren(...Object.entries(NAMES).flatMap(([key, words]) => {
        const [term, value] = ["dt", "dd"].map((tag) => document.createElement(tag));
        term.textContent = words;
        value.textContent = now[key];
        return [term, value];
      }));
      const past = [...(rates.get(name) ?? []), now.rate].slice(-61);
      rates.set(name, past);
      const top = Math.max(1, ...past);
      /* the newest is at the right edge; the line at the bottom is 0 */
      const points = past.map((rate, i) => 61 - past.length + i + " " + (98 - (96 * rate) / top));
      card.querySelector("path").setAttribute("d", "M" + points.join("L"));
    }
  };
</script>
</html>
`;
