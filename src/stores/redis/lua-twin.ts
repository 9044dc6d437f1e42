/** The Lua twin of an algorithm. */
export interface LuaTwin {
  /** The name of the algorithm. */
  readonly name: string;
  /** The character that names the algorithm in stored state. */
  readonly code: string;
  /** Registers the twin in the table `algorithms`; with marks in place of what only a limiter's own policies need. */
  readonly lua: string;
  /** What replaces these marks, by their numbers. Absent: nothing, for the states of other versions. */
  readonly own?: Readonly<Record<string, string>>;
  /**
   * The parts of the hot path that depend on the algorithm, for a limiter with this algorithm alone, by the marks
   * that they replace: numbers in hot.lua, and in other parts the names of functions. Absent: the algorithm has none.
   */
  readonly hot?: Readonly<Record<string, string>>;
}
