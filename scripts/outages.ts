// Causes every fault and prints the measured outcome:
//
//   npm run outages                 causes all faults: two minutes
//   npm run outages -- half kill    causes the faults whose title contains one of the words
//   npm run outages -- --write      also puts the table into docs/outage-bounds.md

import { faults } from "../test/support/outages/faults.ts";
import type { Ahead, Outcome } from "../test/support/outages/outcome.ts";
import { Processes } from "../test/support/outages/processes.ts";
import { writeMarked } from "./marked.ts";

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

const processes = await Processes.start();
const lines = [HEAD];
console.log(HEAD);
for (const fault of chosen) {
  const printed = `| ${row(await processes.run(fault)).join(" | ")} |`;
  lines.push(printed);
  console.log(printed);
}
await processes.stop();
if (process.argv.includes("--write")) {
  writeMarked("docs/outage-bounds.md", "outages", `${lines.join("\n")}\n`);
}
