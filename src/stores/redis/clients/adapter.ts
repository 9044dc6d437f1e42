/** What the stores need from a client. There is one adapter for each family of clients. */
import type { Listening } from "../../lease-store.ts";
import type { ScriptRunner } from "../script-runner.ts";

export interface ClientAdapter {
  readonly runner: ScriptRunner;
  /** Returns the address of the server that has the key. Absent: there is one server. */
  readonly nodeOf?: ((key: string) => string) | undefined;
  /** Reports when the connection closes and opens. Absent: the client does not say. */
  readonly connection?: Connection | undefined;
  /** Opens a subscription on its own connection. Absent: the client cannot. */
  readonly subscribe?: Subscriptions | undefined;
}

/** The status and events of a connection, as ioredis and node-redis name them. */
export interface Connection {
  readonly status?: unknown;
  on?(event: "ready" | "close" | "end" | "reconnecting", listener: () => void): unknown;
}

/** Opens a subscription, as `LeaseStore.listen` does. */
export type Subscriptions = (
  channel: string,
  hear: (message: string) => void,
  resumed: () => void,
) => Listening;
