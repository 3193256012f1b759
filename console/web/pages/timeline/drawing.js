// The drawing of a timeline: phases, load and bars over one axis of real time. A pointer or the arrow
// keys choose a bar; a click or Enter opens its trajectory.

import { fill, h } from "../dom.js";
import { count, figure, reward, span } from "../format.js";
import { s } from "../figures/svg.js";
import { EDGE, area, barAt, neighbour, paths, scene, ticks } from "./scene.js";
import { KINDS } from "./shares.js";

const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];
const A_NUMBER = 90; // pixels of the axis for each
const A_LETTER = 7;

export class Drawing {
  // open: called with the name of a trajectory.
  constructor(open) {
    this.open = open;
    this.told = null;
    this.chosen = null;
    this.sheet = h("div", { class: "sheet", tabindex: "0", role: "group", "aria-label": "bars of trajectories: arrow keys go from bar to bar, Enter opens" });
    this.line = h("p", { class: "line chosen", role: "status" });
    this.element = h("div", { class: "timeline" }, this.line, this.sheet);
    this.sheet.addEventListener("pointermove", (event) => this.point(this.under(event)));
    this.sheet.addEventListener("click", (event) => this.click(this.under(event)));
    this.sheet.addEventListener("keydown", (event) => this.key(event));
    this.size = new ResizeObserver(() => this.draw());
    this.size.observe(this.sheet);
  }

  leave() {
    this.size.disconnect();
  }

  show(told) {
    this.told = told;
    this.chosen = told.bars.find((bar) => bar.name === this.chosen?.name) ?? null;
    this.width = 0;
    this.draw();
  }

  draw() {
    const width = Math.floor(this.sheet.clientWidth);
    if (!this.told || !width || width === this.width) return;
    this.width = width;
    const { told } = this;
    const at = (this.at = scene(told, width));
    this.mark = s("path", { class: "mark-bar", d: "" });
    fill(this.sheet, s("svg", { viewBox: `0 0 ${width} ${at.height}`, width, height: at.height, "aria-hidden": "true" },
      axis(told, at), at.rows.map((kind) => phases(told, at, kind)).flat(),
      plot("load", [["requests", told.load.requests], ["calls", told.load.calls]], "in flight", at),
      plot("tokens", [["rate", told.load.tokens]], "tokens/s", at),
      [...paths(told.bars, at)].map(([kind, d]) => s("path", { class: `t-${kind}`, d })),
      told.published.map((one) => s("line", { class: "published", x1: at.x(one.at), x2: at.x(one.at), y1: EDGE.top - 4, y2: at.height })),
      this.mark));
    this.point(this.chosen);
  }

  // The bar under the pointer, with the moment that is pointed at.
  under(event) {
    if (!this.at) return null;
    const box = this.sheet.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    this.moment = this.at.time(x);
    return barAt(this.told.bars, this.at, x, y) ?? null;
  }

  point(bar) {
    this.chosen = bar;
    if (!this.at) return;
    this.sheet.classList.toggle("over", Boolean(bar));
    if (!bar) {
      this.mark.setAttribute("d", "");
      fill(this.line, this.moment === undefined ? "Point at a bar, or go to it with the arrow keys." : this.now());
      return;
    }
    const [from, to] = [this.at.x(bar.spans[0]?.[1] ?? 0), this.at.x(bar.spans.at(-1)?.[2] ?? 0)];
    this.mark.setAttribute("d", `M${from} ${this.at.y(bar) - 1}H${to}v${this.at.lane}H${from}z`);
    fill(this.line, about(bar));
  }

  // How much was in flight at the moment that is pointed at.
  now() {
    const { requests, calls, tokens } = this.told.load;
    const part = Math.min(Math.floor((this.moment / this.at.ms) * requests.length), requests.length - 1);
    return `After ${span(this.moment / 1000)}: ${figure(requests[part])} requests and ${figure(calls[part])} calls in flight, ${figure(tokens[part])} tokens a second.`;
  }

  click(bar) {
    if (bar) this.open(bar.name);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.told) return;
    if (event.key === "Enter" && this.chosen) return void this.open(this.chosen.name);
    if (!ARROWS.includes(event.key)) return;
    event.preventDefault();
    this.point(this.chosen ? neighbour(this.told.bars, this.chosen, event.key) : (this.told.bars[0] ?? null));
  }
}

// What one trajectory did, in a line.
function about(bar) {
  const sums = new Map();
  for (const [kind, from, to] of bar.spans) sums.set(kind, (sums.get(kind) ?? 0) + to - from);
  const told = [...KINDS].filter(([kind]) => sums.get(kind) > 0).map(([kind, name]) => `${name} ${span(sums.get(kind) / 1000)}`);
  return [h("b", {}, bar.name), ` step ${bar.step}, reward ${reward(bar.reward)}: ${told.join(", ")}`];
}

function axis(told, at) {
  return ticks(at.ms, at.inner / A_NUMBER).flatMap((time) => [
    s("line", { class: "grid", x1: at.x(time), x2: at.x(time), y1: EDGE.top - 4, y2: at.height }),
    s("text", { x: Math.min(at.x(time), at.width - A_NUMBER / 4), y: 12, "text-anchor": "middle" }, span(time / 1000))]);
}

function phases(told, at, kind) {
  const top = at.tops[kind];
  const shown = told.phases.filter((one) => one.kind === kind);
  return [
    s("text", { x: 0, y: top + 11 }, kind === "learner" ? "learner" : "evals"),
    ...shown.flatMap((one) => {
      const [from, to] = [at.x(one.from), at.x(one.to)];
      const fits = kind === "learner" && to - from > one.name.length * A_LETTER;
      return [
        s("rect", { class: `p-${kind === "learner" ? one.name : "evaluation"}`, x: from, y: top, width: Math.max(to - from, 1), height: at.row }),
        fits && s("text", { class: "in", x: (from + to) / 2, y: top + 11, "text-anchor": "middle" }, one.name)];
    })];
}

function plot(kind, lines, unit, at) {
  const top = at.tops[kind];
  const most = Math.max(0, ...lines.flatMap(([, values]) => values));
  return [
    s("text", { x: 0, y: top + 9 }, count(Math.round(most))), s("text", { x: 0, y: top + 22 }, unit),
    ...lines.map(([name, values]) => s("path", { class: `l-${name}`, d: area(values, top, at, most) })),
    s("line", { class: "grid", x1: EDGE.left, x2: EDGE.left + at.inner, y1: top + at.plot, y2: top + at.plot })];
}
