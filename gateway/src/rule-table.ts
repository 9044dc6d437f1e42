/** The rules that are in force, found by name and by path. */
import { hostsOf, isHost } from "./match/host.ts";
import { certainlyBelow } from "./match/pattern.ts";
import { PathTree } from "./match/tree.ts";
import type { GatewayRequest } from "./request.ts";
import type { AnyRule } from "./rules/rule.ts";

/** Which requests to its paths a rule applies to: its methods, hosts and exceptions. */
export class Reach {
  /** Whether it applies to every request to its paths. */
  readonly isForAll: boolean;
  readonly #rule: AnyRule;
  readonly #exceptions: readonly ((target: string) => boolean)[];

  constructor(rule: AnyRule) {
    this.#rule = rule;
    this.isForAll = !rule.methods && !rule.hosts && rule.except.length === 0;
    this.#exceptions = rule.except.map(certainlyBelow);
  }

  includes({ method, url }: GatewayRequest, hosts: () => readonly string[]): boolean {
    const wanted = this.#rule.hosts;
    return (
      this.#hasMethod(method) &&
      !this.#exceptions.some((isBelow) => isBelow(url)) &&
      (wanted === undefined || hosts().some((host) => wanted.some((each) => isHost(each, host))))
    );
  }

  /** GET includes HEAD, which servers answer in the same way. */
  #hasMethod(method: string): boolean {
    const { methods } = this.#rule;
    if (methods === undefined) return true;
    const asked = method.toUpperCase();
    return methods.includes(asked) || (asked === "HEAD" && methods.includes("GET"));
  }
}

/** A rule in force. */
export interface InForce {
  readonly rule: AnyRule;
  readonly reach: Reach;
}

export class RuleTable<T extends InForce> {
  readonly #tree = new PathTree<T>();
  readonly #byName = new Map<string, T>();
  /** Whether a target may match two URLs of one rule. */
  #hasLists = false;

  add(one: T): void {
    const { name, urls, exact } = one.rule;
    this.#byName.set(name, one);
    if (urls.length > 1) this.#hasLists = true;
    for (const url of urls) this.#tree.add(url, one, exact);
  }

  find(name: string): T | undefined {
    return this.#byName.get(name);
  }

  all(): readonly T[] {
    return [...this.#byName.values()];
  }

  /** Returns the rules that apply to a request, those of the outermost URL first. */
  match(request: GatewayRequest): readonly T[] {
    const matches = this.#tree.match(request.url);
    const found = this.#hasLists ? [...new Set(matches)] : matches;
    if (found.every(isForAll)) return found;
    let known: readonly string[] | undefined;
    const hosts = () => {
      known ??= hostsOf(request);
      return known;
    };
    return found.filter(({ reach }) => reach.includes(request, hosts));
  }
}

function isForAll({ reach }: InForce): boolean {
  return reach.isForAll;
}
