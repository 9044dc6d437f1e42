// Writes src/stores/redis/lua.gen.ts: every .lua of src as a string, without comments and indentation; a line
// `--> name` stays, to be replaced by the script of that name.
//
//   npm run lua             writes it
//   npm run lua -- --check  fails if it is not what it would write

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

const TARGET = "src/stores/redis/lua.gen.ts";

const scripts = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".lua"))
  .sort()
  .map((file) => {
    const lines = readFileSync(join("src", file), "utf8")
      .split("\n")
      .map((line) => line.replace(/^\s*--(?!>).*$/, "").trim())
      .filter((line) => line !== "");
    return { name: basename(file, ".lua"), lua: `${lines.join("\n")}\n` };
  });

const entries = scripts.map(
  ({ name, lua }) => `  ${JSON.stringify(name)}: ${JSON.stringify(lua)},`,
);
const text = `// Generated from the .lua files by scripts/embed-lua.ts: edit those, then \`npm run lua\`.
export const lua: Readonly<Record<string, string>> = {
${entries.join("\n")}
};
`;

if (!process.argv.includes("--check")) writeFileSync(TARGET, text);
else if (readFileSync(TARGET, "utf8") !== text) {
  console.error(`${TARGET} is not current: npm run lua`);
  process.exitCode = 1;
}
