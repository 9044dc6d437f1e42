import { testPages } from "../support/docs/pages.ts";

testPages("README", [
  "README.md",
  "ARCHITECTURE.md",
  "CONTRIBUTING.md",
  "SECURITY.md",
  "bench/RESULTS.md",
  "gateway/README.md",
]);
