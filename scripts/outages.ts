// Causes every fault and prints the measured outcome:
//
//   npm run outages                 causes all faults: two minutes
//   npm run outages -- half kill    causes the faults whose title contains one of the words
//   npm run outages -- --write      also puts the table into docs/outage-bounds.md

import { readFileSync, writeFileSync } from "node:fs";
import { faults } from "../test/support/outages/faults.ts";
import type { Ahead, Outcome } from "../test/support/outages/outcome.ts";
import { Processes } from "../test/support/outages/processes.ts";

const PAGE = "docs/outage-bounds.md";
const BEGIN = "<!-- outages: begin -->\n";
const END = "<!-- outages: end -->";

const words = process.argv.slice(2).filter((word) => !word.startsWith("--"));
const chosen = faults.filter(
  ({ title }) => words.length === 0 || words.some((word) => title.includes(word)),
);

const HEAD = `\
| fault | call in flight, ms | later calls, ms | without Redis, ms | deferred | back, ms \
| beyond r × t, during the fault | whole run | at the end | "wait", whole run | left over |
| ---${" | ---:".repeat(10)} |`;

function row(outcome: Outcome): readonly string[] {
  const local = outcome.calls("local");
  const thrown = outcome.calls("throw");
  // "+ 0" turns -0 into 0
  const whole = (permits: number) => Math.round(permits) + 0;
  const against = ({ used, most }: Ahead) => `${whole(used)} of ${whole(most)}`;
  const slowest = ({ thenMs, mostlyMs }: typeof local) =>
    `${thenMs.toFixed(2)}; ${mostlyMs.toFixed(2)}`;
  return [
    outcome.title,
    `${local.firstMs.toFixed(0)}; ${thrown.firstMs.toFixed(0)}`,
    slowest(local),
    slowest(outcome.calls("beside")),
    `${local.turns + thrown.turns} of ${local.count + thrown.count}`,
    outcome.backMs.toFixed(0),
    against(outcome.during()),
    against(outcome.inAll("local")),
    against(outcome.atTheEnd("local")),
    against(outcome.inAll("wait")),
    `${outcome.hung + outcome.left}`,
  ];
}

/** Puts the table between the two marks. */
function write(table: string): void {
  const page = readFileSync(PAGE, "utf8");
  const [before, after] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (before < 0 || after < before) throw new Error(`${PAGE} lacks ${BEGIN.trim()} or ${END}`);
  writeFileSync(PAGE, page.slice(0, before + BEGIN.length) + table + page.slice(after));
}

const processes = await Processes.start();
const lines = [HEAD];
console.log(HEAD);
for (const fault of chosen) {
  const printed = `| ${row(await processes.run(fault)).join(" | ")} |`;
  lines.push(printed);
  console.log(printed);
}
await processes.stop();
if (process.argv.includes("--write")) write(`${lines.join("\n")}\n`);
