/** The Lua twin of an algorithm. */
export interface LuaTwin {
  /** The name of the algorithm. */
  readonly name: string;
  /** Registers the twin in the table `algorithms`. */
  readonly lua: string;
  /** The hot path, for a limiter with this algorithm alone. Absent: the algorithm has none. */
  readonly hot?: string;
}
