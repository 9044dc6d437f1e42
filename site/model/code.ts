// The code that makes the limiter, for the user to copy.

import { type AlgorithmName, algorithmOf, type Numbers } from "./algorithms.ts";
import { hasWeight, isFair, type Settings } from "./settings.ts";

/** The call that makes the policy. */
export function toPolicy(algorithm: AlgorithmName, numbers: Numbers): string {
  const args = Object.entries(algorithmOf(algorithm).args(numbers)).map(
    ([name, value]) => `${name}: ${JSON.stringify(value)}`,
  );
  return `${algorithm}({ ${args.join(", ")} })`;
}

/** A program in TypeScript. */
export function toTypeScript(settings: Settings): string {
  const { algorithm, numbers, verb, common } = settings;
  const { permits = 1, timeoutMs = 0, weight = 1 } = common;
  const count = permits === 1 ? "" : String(permits);
  const fair = isFair(settings);
  const isWeighted = hasWeight(settings) && weight !== 1;
  const share = `share: tenant${isWeighted ? `, weight: tenant === "b" ? ${weight} : 1` : ""}`;
  const most = fair ? `{ timeoutMs: ${timeoutMs}, ${share} }` : timeoutMs;
  const use = {
    wait: `await limiter.acquire(${fair ? `${permits}, { ${share} }` : count});`,
    try: `if (!limiter.tryAcquire(${count})) throw new Error("try again later");`,
    timeout: `if (!(await limiter.tryAcquire(${permits}, ${most}))) throw new Error("try again later");`,
  };
  return `import { Limiter, ${algorithm} } from "smooth-limiter";

const limiter = Limiter.create(${toPolicy(algorithm, numbers)}${fair ? ", { fair: true }" : ""});
${fair ? 'const tenant: string = "a"; // the tenant that calls\n' : ""}
${use[verb]}
`;
}

/** A rule for smooth-limiter-gateway, or a comment that says why there is none. */
export function toYaml(settings: Settings): string {
  const { algorithm, numbers, common } = settings;
  if (isFair(settings)) return "# Rules have no fair queue: each actor has a limit of its own.\n";
  const rule = algorithmOf(algorithm).rule(numbers);
  if (typeof rule === "string") return `# ${rule}\n`;
  const { permits = 1 } = common;
  const fields = Object.entries(permits === 1 ? rule : { ...rule, cost: permits });
  const lines = fields.map(([name, value]) => `    ${name}: ${value}\n`);
  return `url: /\nrules:\n  - actor: device\n${lines.join("")}`;
}
