import { openCell } from "../../../stores/joint-cell.ts";
import { OpenCell, type OutageCell } from "../../../stores/outage-cell.ts";
import { AnswerHere } from "./answer-here.ts";

/** Grants every request, except that a pause still holds. */
export class AllowWhenUnavailable extends AnswerHere {
  override fraction(): number {
    return 1;
  }

  override open(_fraction: number, now: number, epoch: number): OutageCell {
    const { declared, inForce } = this.parts;
    return new OpenCell(openCell({ ...declared, list: inForce.policies }, now, epoch));
  }
}
