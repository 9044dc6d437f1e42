import { algorithms } from "../../src/algorithms/index.ts";
import { samplesOf } from "../support/algorithms/samples.ts";
import { runs } from "../support/suite.ts";
import { algorithmSuite } from "./algorithm.suite.ts";

for (const { name } of algorithms) {
  for (const [title, everyday] of Object.entries(samplesOf(name).everyday)) {
    algorithmSuite(title, everyday, runs(100));
  }
}
