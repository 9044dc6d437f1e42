import type { CasBackend } from "../../../src/store.ts";

/** The smallest backend: a map in this process. */
export class MapBackend implements CasBackend {
  readonly values = new Map<string, Uint8Array>();
  readonly lives = new Map<string, number>();

  async get(key: string): Promise<Uint8Array | undefined> {
    return this.values.get(key);
  }

  async compareAndSet(
    key: string,
    before: Uint8Array | undefined,
    after: Uint8Array,
    lifeMs: number,
  ): Promise<boolean> {
    if (this.values.get(key) !== before) return false;
    this.values.set(key, after);
    this.lives.set(key, lifeMs);
    return true;
  }
}
