import { type Call, tenantsOf } from "../model/simulate.ts";
import { colourOf } from "./chart.ts";
import { make } from "./dom.ts";

/** Names the colours of the tenants, if there are several. */
export function legend(calls: readonly Call[]): HTMLElement {
  const tenants = tenantsOf(calls);
  const names = tenants.map((tenant) =>
    make("span", { class: colourOf(calls, tenant) }, `\u25a0 ${tenant}`),
  );
  return make("p", { class: "pg-legend" }, ...(tenants.length > 1 ? names : []));
}
