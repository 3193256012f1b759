// A page that is one file: it draws the data that stands in the file.

import { fill } from "../dom.js";
import { comparison } from "./comparison.js";
import { ladder } from "./ladder.js";
import { report } from "./report.js";

const KINDS = { report, comparison, ladder };
const { kind, data } = JSON.parse(document.getElementById("data").textContent);
const { parts, charts } = KINDS[kind](data);
fill(document.getElementById("main"), parts);
addEventListener("beforeprint", () => charts.drawAll());
