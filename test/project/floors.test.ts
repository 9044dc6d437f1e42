import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import * as assert from "uvu/assert";
import { suite } from "../support/suite.ts";

interface Room {
  file: string;
  allowed: string[];
  refused: string[];
}

// What each room may import, and what it must not: the floors of CONTRIBUTING.md, as biome.json
// enforces them.
const rooms: Room[] = [
  {
    file: "src/ground/ground.ts",
    allowed: ["./clock.ts"],
    refused: [
      "../algorithms/index.ts",
      "../local/limiter.ts",
      "../index.ts",
      "../store.ts",
      "ioredis",
      "node:fs",
    ],
  },
  {
    file: "src/algorithms/algorithm.ts",
    allowed: ["../ground/permits.ts", "./quota.ts"],
    refused: ["./smooth/smooth.ts", "./index.ts", "../stores/store.ts", "../index.ts"],
  },
  {
    file: "src/algorithms/smooth/price.ts",
    allowed: ["../algorithm.ts", "../../ground/check.ts", "./smooth.ts", "../gcra/gcra.ts"],
    refused: [
      "../../stores/store.ts",
      "../../local/limiter.ts",
      "../../adapters/fetch/index.ts",
      "../../testing/index.ts",
      "../../redis/index.ts",
      "ioredis",
      "node:fs",
    ],
  },
  {
    file: "src/stores/policies.ts",
    allowed: ["./store.ts", "../ground/clock.ts", "../algorithms/algorithm.ts"],
    refused: [
      "./redis/client.ts",
      "../local/limiter.ts",
      "../adapters/fetch/index.ts",
      "../store.ts",
      "ioredis",
    ],
  },
  {
    file: "src/stores/redis/store.ts",
    allowed: ["ioredis", "../store.ts", "./client.ts", "../../algorithms/index.ts"],
    refused: [
      "../../local/limiter.ts",
      "../../redis/index.ts",
      "../../testing/index.ts",
      "p-queue",
    ],
  },
  {
    file: "src/local/limiter.ts",
    allowed: [
      "./rate-limiter.ts",
      "../queue/reservation.ts",
      "../stores/policies.ts",
      "../algorithms/index.ts",
      "../ground/clock.ts",
    ],
    refused: [
      "../remote/remote-limiter.ts",
      "../combine/all-of.ts",
      "../adapters/fetch/index.ts",
      "../stores/redis/store.ts",
      "../redis/index.ts",
      "../store.ts",
      "ioredis",
    ],
  },
  {
    file: "src/queue/line.ts",
    allowed: ["./waiter.ts", "../api/decision.ts", "../stores/policies.ts"],
    refused: ["../local/limiter.ts", "../remote/remote-limiter.ts", "../store.ts"],
  },
  {
    file: "src/adapters/p-queue/index.ts",
    allowed: ["p-queue", "node:http", "../../local/limiter.ts", "../../ground/clock.ts"],
    refused: [
      "../../stores/store.ts",
      "../../algorithms/index.ts",
      "../../redis/index.ts",
      "ioredis",
    ],
  },
  {
    file: "gateway/src/gateway.ts",
    allowed: [
      "js-yaml",
      "smooth-limiter",
      "smooth-limiter/redis",
      "./ground/check.ts",
      "./rules/algorithms.ts",
    ],
    refused: [
      "smooth-limiter/testing",
      "../../src/api/limiter-api.ts",
      "./index.ts",
      "./rules/index.ts",
      "ioredis",
      "smooth-limiter-cli",
    ],
  },
  {
    file: "cli/src/replay/replay.ts",
    allowed: [
      "commander",
      "node:fs",
      "../io.ts",
      "smooth-limiter",
      "smooth-limiter-gateway",
      "smooth-limiter-gateway/rules",
    ],
    refused: [
      "smooth-limiter/testing",
      "smooth-limiter/redis",
      "../../../src/index.ts",
      "../../../gateway/src/limits.ts",
      "ioredis",
    ],
  },
  {
    file: "cli/src/redis/entries.ts",
    allowed: ["commander", "../io.ts", "smooth-limiter", "smooth-limiter/redis", "ioredis"],
    refused: ["smooth-limiter/testing", "../../../src/index.ts"],
  },
  {
    file: "src/testing/fake-clock.ts",
    allowed: ["../ground/clock.ts", "./index.ts", "../stores/transition-store.ts"],
    refused: [
      "../local/limiter.ts",
      "../algorithms/index.ts",
      "../stores/redis/store.ts",
      "../index.ts",
      "../store.ts",
      "uvu",
    ],
  },
  {
    file: "src/index.ts",
    allowed: [
      "./ground/clock.ts",
      "./local/limiter.ts",
      "./algorithms/index.ts",
      "./stores/policies.ts",
    ],
    refused: [
      "./stores/redis/store.ts",
      "./redis/index.ts",
      "./adapters/fetch/index.ts",
      "ioredis",
    ],
  },
  {
    file: "src/store.ts",
    allowed: ["./stores/cas-store.ts", "./remote/remote-limiter.ts", "./ground/check.ts"],
    refused: ["./stores/redis/store.ts", "./redis/index.ts", "./testing/index.ts", "ioredis"],
  },
  { file: "src/redis/index.ts", allowed: ["ioredis", "./stores/redis/store.ts"], refused: [] },
];

/** The `file:line` of each place in a scratch project where `rule` fires. */
function lint(rule: string, sources: Record<string, string>): string[] {
  const project = mkdtempSync(join(tmpdir(), "smooth-limiter-floors-"));
  try {
    for (const name of ["biome.json", ".gitignore", "package.json"])
      cpSync(name, join(project, name));
    for (const [name, text] of Object.entries(sources)) {
      mkdirSync(dirname(join(project, name)), { recursive: true });
      writeFileSync(join(project, name), text);
    }
    const biome = resolve("node_modules/@biomejs/biome/bin/biome");
    const options = ["--reporter=github", "--max-diagnostics=none", `--only=${rule}`];
    const { stdout, status } = spawnSync(process.execPath, [biome, "lint", ...options, "."], {
      cwd: project,
      encoding: "utf8",
      env: { ...process.env, NODE_V8_COVERAGE: "" },
    });
    const found = [
      ...stdout.matchAll(
        /^::error title=lint.*?file=(?:.*smooth-limiter-floors-\w+\/)?([^,]+),line=(\d+)/gm,
      ),
    ];
    assert.is(status, found.length > 0 ? 1 : 0, stdout);
    return found.map(([, file, line]) => `${file}:${line}`).sort();
  } finally {
    rmSync(project, { recursive: true, force: true });
  }
}

const floors = suite("floors");

floors("each room imports only from the floors below and from itself", () => {
  const sources: Record<string, string> = {};
  const refusals: string[] = [];
  for (const { file, allowed, refused } of rooms) {
    const imports = [...allowed, ...refused];
    sources[file] = imports.map((from, i) => `export * as name${i} from "${from}";\n`).join("");
    refused.forEach((_, i) => void refusals.push(`${file}:${allowed.length + i + 1}`));
  }
  assert.equal(lint("style/noRestrictedImports", sources), refusals.sort());
});

floors("no file imports a module of Node, except where its name or its purpose is Node's", () => {
  const builtIn = 'export * as name from "node:path";\n';
  const files = [
    "src/queue/a.ts",
    "src/adapters/streams/index.ts",
    "gateway/src/hosts/fetch.ts",
    "gateway/src/rules/index.ts",
    "cli/src/report/chart.ts",
  ];
  const forNode = [
    "src/adapters/streams/node.ts",
    "cli/src/io.ts",
    "gateway/src/hosts/upgrade.ts",
    "gateway/src/sources/file-source.ts",
  ];
  const sources = Object.fromEntries([...files, ...forNode].map((file) => [file, builtIn]));
  assert.equal(
    lint("correctness/noNodejsModules", sources),
    files.map((file) => `${file}:1`).sort(),
  );
});

floors("imports form no cycle, not even of types", () => {
  const sources = {
    "src/a.ts": 'import { b } from "./b.ts";\nexport const a = b;\n',
    "src/b.ts": 'import type { C } from "./c.ts";\nexport const b: C = 1;\n',
    "src/c.ts": 'import type { a } from "./a.ts";\nexport type C = typeof a;\n',
    "src/d.ts": 'import { a } from "./a.ts";\nexport const d = a;\n',
  };
  assert.equal(lint("suspicious/noImportCycles", sources), [
    "src/a.ts:1",
    "src/b.ts:1",
    "src/c.ts:1",
  ]);
});

floors.run();
