// A line for each trajectory: when the sampler wrote, when the tool ran, and when neither did.

import { h } from "../dom.js";
import { figure } from "../format.js";
import { ticks } from "./scale.js";
import { s } from "./svg.js";

const [WIDTH, LINE, LEFT, FOOT] = [1100, 4, 8, 34];

export function timeline({ title, bars, ideal }) {
  const last = Math.max(ideal, ...bars.map(({ end }) => end));
  const height = LINE * bars.length;
  const x = (second) => LEFT + ((WIDTH - 2 * LEFT) * second) / last;
  const strokes = (style, spans) => s("path", { class: `strokes ${style}`, d: bars.flatMap((bar, at) =>
    spans(bar).map(([begin, end]) => `M${x(begin).toFixed(1)} ${LINE * at + LINE / 2}H${x(end).toFixed(1)}`)).join("") });
  return h("figure", { class: "chart" }, h("h3", {}, title), s("svg", { viewBox: `0 0 ${WIDTH} ${height + FOOT}` },
    strokes("c4", ({ end }) => [[0, end]]), strokes("c0", ({ generate }) => generate), strokes("c2", ({ tool }) => tool),
    s("line", { class: "mark", x1: x(ideal), x2: x(ideal), y1: 0, y2: height + 4 }),
    ticks(0, last, 12).map((second) => s("text", { x: x(second), y: height + 18, "text-anchor": "middle" }, `${figure(second)} s`))));
}
