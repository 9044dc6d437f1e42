import type { LeaseReply, LeaseRequest, LeaseVerb, Standing } from "../../stores/lease-store.ts";
import type { PendingRequest } from "../remote/store-link.ts";

export interface LeaseAnswer {
  readonly standing: Standing;
  /** When the batch was sent, ms: the store cannot have acted earlier. */
  readonly sentAt: number;
  readonly reply: LeaseReply;
}

/** A request about a lease; the answer resolves its promise. */
export class LeaseCall implements LeaseRequest, PendingRequest<LeaseAnswer> {
  readonly gone = false;
  readonly verb: LeaseVerb;
  readonly what: string;
  answer!: (answer: LeaseAnswer) => void;
  fail!: (error: unknown) => void;
  readonly promise: Promise<LeaseAnswer>;

  constructor(verb: LeaseVerb, what: string) {
    this.verb = verb;
    this.what = what;
    this.promise = new Promise((resolve, reject) => {
      this.answer = resolve;
      this.fail = reject;
    });
  }
}
