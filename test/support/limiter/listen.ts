import { type Channel, diagnostics } from "../../../src/ground/diagnostics.ts";

/** The channel's short name, and the message. */
export type ReceivedMessage = readonly [keyof typeof diagnostics, Record<string, unknown>];

/** Listens to all channels from `start` to `stop`. */
export function listener() {
  const received: ReceivedMessage[] = [];
  const subscriptions = Object.entries(diagnostics).map(([event, channel]) => ({
    channel: channel as Channel<unknown>,
    onMessage: (message: unknown) =>
      void received.push([event, message] as unknown as ReceivedMessage),
  }));
  return {
    start: () => {
      for (const { channel, onMessage } of subscriptions) channel.subscribe(onMessage);
    },
    /** The messages since the last call. */
    takeMessages: () => received.splice(0),
    stop: () => {
      for (const { channel, onMessage } of subscriptions) channel.unsubscribe(onMessage);
    },
  };
}
