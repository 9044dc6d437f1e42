import { testPages } from "../support/docs/pages.ts";

testPages("README", ["README.md", "bench/RESULTS.md", "CONTRIBUTING.md", "ARCHITECTURE.md"]);
