import { openPolicyState } from "../../../stores/joint-policy-state.ts";
import { OpenPolicyState, type OutagePolicyState } from "../../../stores/outage-policy-state.ts";
import { AnswerHere } from "./answer-here.ts";

/** Grants every request, except that a pause still holds. */
export class AllowWhenUnavailable extends AnswerHere {
  override fraction(): number {
    return 1;
  }

  override open(_fraction: number, now: number, epoch: number): OutagePolicyState {
    const { declared, inForce } = this.parts;
    return new OpenPolicyState(
      openPolicyState({ ...declared, list: inForce.policies }, now, epoch),
    );
  }
}
