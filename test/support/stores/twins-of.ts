import { luaTwins } from "../../../src/stores/redis/lua.gen.ts";
import type { LuaTwin } from "../../../src/stores/redis/lua-twin.ts";

/** The Lua twins of these algorithms. */
export function twinsOf(names: readonly string[]): readonly LuaTwin[] {
  return names.map((name) => {
    const twin = luaTwins[name];
    if (twin === undefined) throw new Error(`the Lua twin of ${name} is missing`);
    return twin;
  });
}
