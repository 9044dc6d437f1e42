// The code that makes the limiter, for the user to copy.

import { type AlgorithmName, algorithmOf, type Numbers } from "./algorithms.ts";
import { hasWeight, isFair, type Settings, VERBS } from "./settings.ts";

/** The call that makes the policy. */
export function toPolicy(algorithm: AlgorithmName, numbers: Numbers): string {
  const args = Object.entries(algorithmOf(algorithm).args(numbers)).map(
    ([name, value]) => `${name}: ${JSON.stringify(value)}`,
  );
  return `${algorithm}({ ${args.join(", ")} })`;
}

/** A module in TypeScript that does what the picture shows. */
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
  return `import { ${fair ? "fairShares, " : ""}Limiter, ${algorithm} } from "smooth-limiter";

// one limiter for all callers
const limiter = Limiter.create(${toPolicy(algorithm, numbers)}${fair ? ", { order: fairShares() }" : ""});

export async function beforeEachRequest(${fair ? "tenant: string" : ""}): Promise<void> {
  ${use[verb]}
}
`;
}

/** A rule for smooth-limiter-gateway that does what the picture shows, or a comment that says why there is none. */
export function toYaml(settings: Settings): string {
  const { algorithm, numbers, verb, common } = settings;
  const { rule: ruleOf, ruleWaits = false } = algorithmOf(algorithm);
  const rule = ruleOf(numbers);
  if (typeof rule === "string") return `# ${rule}\n`;
  if (isFair(settings)) return "# Rules have no fair queue.\n";
  const needed = ruleWaits ? "wait" : "try";
  if (verb !== needed) {
    const does = ruleWaits ? "lets requests wait" : "never lets a request wait";
    return `# A rule with ${algorithm} ${does}.\n# To see what it does, choose: a caller ${VERBS[needed]}\n`;
  }
  const { permits = 1 } = common;
  const fields = Object.entries(permits === 1 ? rule : { ...rule, cost: permits });
  const lines = fields.map(([name, value]) => `    ${name}: ${value}\n`);
  return `url: /
rules:
  - actor: all # one limiter for all clients; "device": one for each
${lines.join("")}`;
}
