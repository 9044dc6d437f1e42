/** Finds the node of a Cluster that serves a key, in the client's own table of slots. */

/** In ioredis the addresses that serve the slot, the master first; in node-redis the slot's nodes. */
type SlotEntry =
  | readonly string[]
  | { readonly master?: { readonly address?: string; readonly host?: string } };

/** The fields of a Cluster client that hold its slots and options. */
export interface ClusterClient {
  readonly slots?: readonly (SlotEntry | undefined)[];
  readonly options?: { readonly keyPrefix?: string };
}

/** Returns the address of the master that serves the key; empty if the client does not know it. */
export function nodeOf(client: ClusterClient, key: string): string {
  try {
    const prefix = client.options?.keyPrefix ?? "";
    const entry = client.slots?.[slotOf(prefix + key)];
    if (entry === undefined) return "";
    return "master" in entry ? String(entry.master?.address) : String((entry as string[])[0]);
  } catch {
    // the table looks different in this version of the client
    return "";
  }
}

/** Returns the slot of a key: the hash of the text in its first braces or, if that is empty, of the key. */
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

/** The table of the CRC16 that Redis Cluster uses: polynomial 0x1021, not reflected. */
const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});
