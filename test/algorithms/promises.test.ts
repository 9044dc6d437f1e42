import { algorithms } from "../../src/algorithms/index.ts";
import { algorithmSuite } from "./algorithm.suite.ts";
import { samplesOf } from "./samples.ts";

for (const { name } of algorithms) {
  for (const [title, everyday] of Object.entries(samplesOf(name).everyday)) {
    algorithmSuite(title, everyday);
  }
}
