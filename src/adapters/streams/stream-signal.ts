import { onAbort } from "../on-abort.ts";

/**
 * Removes the listeners of streams that were created and never used. Undefined on older edge runtimes,
 * where the signal keeps such streams alive.
 */
const dropped =
  typeof FinalizationRegistry === "function"
    ? new FinalizationRegistry<() => void>((unlisten) => unlisten())
    : undefined;

/**
 * The signal that ends a stream. It does not keep the stream alive until the stream is used: a stream
 * that was created and never used is collected, however long the signal lives.
 */
export class StreamSignal<Stream extends object> {
  readonly #signal: AbortSignal | undefined;
  readonly #end: (stream: Stream, reason: unknown) => void;
  #unlisten: (() => void) | undefined;
  #isHeld = false;

  /** @param end ends the stream on an abort; it must not be a closure over the stream, which it would keep */
  constructor(signal: AbortSignal | undefined, end: (stream: Stream, reason: unknown) => void) {
    this.#signal = signal;
    this.#end = end;
  }

  /** Ends the stream on an abort of the signal, past or future, unless the stream is collected before. */
  listen(stream: Stream): void {
    if (this.#signal === undefined) return;
    if (dropped === undefined) {
      this.hold(stream);
      return;
    }
    this.#unlisten = listenWeakly(this.#signal, new WeakRef(stream), this.#end);
    dropped.register(stream, this.#unlisten, this);
  }

  /** Called when the stream is used: keeps it alive until it ends or is aborted. */
  hold(stream: Stream): void {
    if (this.#isHeld) return;
    this.release();
    if (this.#signal?.aborted === false) {
      this.#unlisten = onAbort(this.#signal, (reason) => this.#end(stream, reason));
    }
  }

  /** Called when the stream has ended: removes the listener. */
  release(): void {
    this.#isHeld = true;
    dropped?.unregister(this);
    this.#unlisten?.();
    this.#unlisten = undefined;
  }
}

/** Outside the class: closures of one method share its variables, and would keep the stream alive. */
function listenWeakly<Stream extends object>(
  signal: AbortSignal,
  stream: WeakRef<Stream>,
  end: (stream: Stream, reason: unknown) => void,
): () => void {
  return onAbort(signal, (reason) => {
    const alive = stream.deref();
    if (alive !== undefined) end(alive, reason);
  });
}
