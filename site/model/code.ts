// The code that makes the limiter, for the user to copy.

import { algorithmOf } from "./algorithms.ts";
import type { Settings } from "./settings.ts";

/** A program in TypeScript. */
export function toTypeScript({ algorithm, numbers, verb, common }: Settings): string {
  const args = Object.entries(algorithmOf(algorithm).args(numbers)).map(
    ([name, value]) => `${name}: ${JSON.stringify(value)}`,
  );
  const { permits = 1, timeoutMs = 0 } = common;
  const count = permits === 1 ? "" : String(permits);
  const use = {
    wait: `await limiter.acquire(${count});`,
    try: `if (!limiter.tryAcquire(${count})) throw new Error("try again later");`,
    timeout: `if (!(await limiter.tryAcquire(${permits}, ${timeoutMs}))) throw new Error("try again later");`,
  };
  return `import { Limiter, ${algorithm} } from "smooth-limiter";

const limiter = Limiter.create(${algorithm}({ ${args.join(", ")} }));

${use[verb]}
`;
}

/** A rule for smooth-limiter-gateway, or a comment that says why there is none. */
export function toYaml({ algorithm, numbers, common }: Settings): string {
  const rule = algorithmOf(algorithm).rule(numbers);
  if (typeof rule === "string") return `# ${rule}\n`;
  const { permits = 1 } = common;
  const fields = Object.entries(permits === 1 ? rule : { ...rule, cost: permits });
  const lines = fields.map(([name, value]) => `    ${name}: ${value}\n`);
  return `url: /\nrules:\n  - actor: device\n${lines.join("")}`;
}
