/** Which node of a Cluster serves a key, by the client's own table of slots. */

/** Of ioredis: the addresses that serve the slot, the master first; of node-redis: its nodes. */
type SlotEntry =
  | readonly string[]
  | { readonly master?: { readonly address?: string; readonly host?: string } };

/** What the client of a Cluster knows, by the names that clients give it. */
export interface ClusterClient {
  readonly slots?: readonly (SlotEntry | undefined)[];
  readonly options?: { readonly keyPrefix?: string };
}

/** By what the clients of a Cluster have: that of ioredis, that of node-redis. */
export function isCluster(client: object): boolean {
  return "nodes" in client || "nodeClient" in client;
}

/** The address of the master that serves the key; empty where the client does not know it. */
export function nodeOf(client: ClusterClient, key: string): string {
  const prefix = client.options?.keyPrefix ?? "";
  const entry = client.slots?.[slotOf(prefix + key)];
  if (entry === undefined) return "";
  return "master" in entry ? String(entry.master?.address) : String((entry as string[])[0]);
}

/** The slot of a key: what is in its first braces decides or, where there is nothing, all of it. */
export function slotOf(key: string): number {
  const open = key.indexOf("{");
  const end = open < 0 ? -1 : key.indexOf("}", open + 1);
  const hashed = end > open + 1 ? key.slice(open + 1, end) : key;
  let crc = 0;
  for (const byte of new TextEncoder().encode(hashed)) {
    crc = ((crc << 8) ^ Number(TABLE[((crc >> 8) ^ byte) & 0xff])) & 0xffff;
  }
  return crc % 16_384;
}

/** CRC16 as Redis Cluster has it: polynomial 0x1021, nothing reflected. */
const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});
