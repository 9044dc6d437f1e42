import { type Channel, diagnostics } from "../../../src/ground/diagnostics.ts";

/** The channel's short name, and the message. */
export type Told = readonly [keyof typeof diagnostics, Record<string, unknown>];

/** Listens to all channels from `start` to `stop`. */
export function listener() {
  const told: Told[] = [];
  const ears = Object.entries(diagnostics).map(([event, channel]) => ({
    channel: channel as Channel<unknown>,
    hear: (message: unknown) => void told.push([event, message] as unknown as Told),
  }));
  return {
    start: () => {
      for (const { channel, hear } of ears) channel.subscribe(hear);
    },
    /** The messages since the last call. */
    heard: () => told.splice(0),
    stop: () => {
      for (const { channel, hear } of ears) channel.unsubscribe(hear);
    },
  };
}
