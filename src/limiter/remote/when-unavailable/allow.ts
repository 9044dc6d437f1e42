import type { Policy } from "../../../algorithms/algorithm.ts";
import { openCell } from "../../../stores/joint-cell.ts";
import { OpenCell, type OutageCell } from "../../../stores/outage-cell.ts";
import { AnswerHere } from "./answer-here.ts";

/** Grants every request, except that a pause still holds. */
export class AllowWhenUnavailable extends AnswerHere {
  protected override fraction(): number {
    return 1;
  }

  protected override begin(list: readonly Policy[]) {
    const { names } = this.options;
    return {
      open: (_fraction: number, now: number, epoch: number): OutageCell =>
        new OpenCell(openCell({ names, list }, now, epoch)),
      heldFor: 0,
    };
  }
}
