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
  section { border: 2px solid #8888; border-radius: 8px; padding: 1rem }
  section.away { border-color: #d9580d }
  h2, dl { margin: 0 }
  dl { display: grid; grid-template-columns: 1fr auto; gap: .2rem 1rem; font-variant-numeric: tabular-nums }
  dd { margin: 0; text-align: right }
  svg { width: 100%; height: 60px }
  path { fill: none; stroke: #3b7dd8; stroke-width: 2; vector-effect: non-scaling-stroke }
</style>
<h1>Limiters</h1>
<p id="link" role="status">connecting</p>
<main></main>
<script type="module">
  const link = document.querySelector("#link");
  const cards = new Map();
  const NAMES = {
    rate: "granted per second", waiting: "waiting now", longestWaitMs: "longest wait, ms",
    refused: "refused", outages: "outages", store: "store",
  };

  function addCard(name) {
    const card = document.createElement("section");
    card.innerHTML = '<h2></h2><svg viewBox="0 0 60 100" preserveAspectRatio="none" aria-hidden="true"><path/></svg><dl></dl>';
    card.firstChild.textContent = name;
    document.querySelector("main").append(card);
    cards.set(name, { card, rates: [] });
  }

  const events = new EventSource("events");
  events.onopen = () => { link.textContent = "live" };
  events.onerror = () => { link.textContent = "connection lost, trying again" };
  events.onmessage = ({ data }) => {
    for (const [name, now] of Object.entries(JSON.parse(data))) {
      if (!cards.has(name)) addCard(name);
      const { card, rates } = cards.get(name);
      card.className = now.store === "unavailable" ? "away" : "";
      card.querySelector("dl").replaceChildren(...Object.entries(NAMES).flatMap(([key, words]) => {
        const [term, value] = ["dt", "dd"].map((tag) => document.createElement(tag));
        term.textContent = words;
        value.textContent = now[key];
        return [term, value];
      }));
      rates.push(now.rate);
      if (rates.length > 61) rates.shift();
      const top = Math.max(1, ...rates);
      /* the newest is at the right edge; 0 is at the bottom */
      const points = rates.map((rate, i) => 61 - rates.length + i + " " + (98 - (96 * rate) / top));
      card.querySelector("path").setAttribute("d", "M" + points.join("L"));
    }
  };
</script>
</html>
`;
