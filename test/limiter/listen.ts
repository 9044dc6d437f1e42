import { type Channel, diagnostics } from "../../src/diagnostics.ts";

type Event = keyof typeof diagnostics;

/** What was told since somebody began to listen: the channel's short name and the message. */
export type Told = readonly [Event, Record<string, unknown>];

/** Listens to the channels, by default to all, until `stop`. */
export function listen(events = Object.keys(diagnostics) as Event[]) {
  const told: Told[] = [];
  const subscribed = events.map((event) => {
    const channel = diagnostics[event] as Channel<unknown>;
    const hear = (message: unknown) => void told.push([event, message as Told[1]]);
    channel.subscribe(hear);
    return () => void channel.unsubscribe(hear);
  });
  return {
    /** What was told since it was last asked. */
    heard: () => told.splice(0),
    stop: () => {
      for (const unsubscribe of subscribed) unsubscribe();
    },
  };
}
