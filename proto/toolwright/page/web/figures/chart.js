// One plot: a drawing, and below it each line's name with its value at the step that is pointed at,
// by the pointer or with the arrow keys; at the last step without either.

import { fill, h } from "../dom.js";
import { count, figure, figures } from "../format.js";
import { plain } from "../visible.js";
import { SIZE, WIDE, nearest, range, scales, ticks } from "./scale.js";
import { s } from "./svg.js";

const STYLES = new Set([
  ...Array.from({ length: 8 }, (_, at) => `c${at}`), "sampled", "greedy", "reward", "control", "beneath", "thin", "dash1", "dash2",
]);
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

export class Chart {
  // pointed: called with the step that is pointed at, or null. opened: with the plot, a line and the
  // place of a point of it, by a click or Enter.
  constructor(pointed, opened) {
    this.pointed = pointed;
    this.opened = opened;
    this.title = h("h3");
    this.at = h("span", { class: "at" });
    this.drawing = h("div", { class: "drawing", tabindex: "0", role: "group" });
    this.names = h("ul", { class: "values" });
    this.note = h("p", { class: "quiet" });
    this.element = h("figure", { class: "chart" }, h("div", { class: "title" }, this.title, this.at), this.drawing, this.names, this.note);
    this.drawing.addEventListener("pointermove", (event) => this.pointer(event));
    this.drawing.addEventListener("click", (event) => this.click(event));
    this.drawing.addEventListener("pointerleave", () => this.pointed(null));
    this.drawing.addEventListener("keydown", (event) => this.key(event));
    this.drawing.addEventListener("focus", () => this.names.setAttribute("aria-live", "polite"));
    this.drawing.addEventListener("blur", () => {
      this.names.removeAttribute("aria-live");
      this.pointed(null);
    });
  }

  // of: a plot of the server, or one that was laid together of several (plots.js).
  show(of) {
    this.of = of;
    this.drawn = false;
    fill(this.title, of.title);
    const means = of.means ?? "means of the steps around";
    const thinned = of.lines.some((line) => line.mean) && `Bold: ${means}. Faint: as measured.`;
    this.size = of.wide ? WIDE : SIZE;
    this.drawing.classList.toggle("wide", Boolean(of.wide));
    const changed = (of.marks ?? []).map((mark) => `Step ${count(mark.x)}, ${mark.text}.`);
    fill(this.note, [of.note, thinned, ...changed].filter(Boolean).join(" "));
    this.note.hidden = !this.note.textContent;
    this.drawing.setAttribute("aria-label", `${plain(of.title)}, ${of.unit}: arrow keys go from step to step${this.opened ? ", Enter shows the trajectories" : ""}`);
    this.rows = of.lines.map((line) => h("b", {}));
    fill(this.names, of.lines.map((line, at) =>
      h("li", {}, h("i", { class: `swatch ${classes(line)}` }), h("span", {}, line.name, line.run && line.run !== line.name && `, ${line.run}`), this.rows[at])));
    this.point(this.step ?? null);
  }

  // Only what is seen is drawn.
  draw() {
    if (this.drawn) return;
    this.drawn = true;
    const { of } = this;
    const heights = of.kind === "areas" ? stacked(of.lines) : of.lines.map((line) => (of.log ? line.y.map(logarithm) : line.y));
    this.heights = heights;
    const across = of.log_x ? logarithm : (x) => x;
    const xs = of.labels ? [-0.5, of.labels.length - 0.5] : range(of.lines.flatMap((line) => [across(line.x[0]), across(line.x.at(-1))]));
    const ys = range(heights.flatMap((list, at) => ends(list, of.lines[at].error)), of.kind === "areas" ? 0 : of.low, of.high);
    this.scales = scales(xs, ys, this.size);
    if (of.log_x) {
      const { x, back } = this.scales;
      Object.assign(this.scales, { x: (value) => x(logarithm(value)), back: (at) => 10 ** back(at) });
    }
    this.cursor = s("line", { class: "cursor", x1: 0, x2: 0, y1: this.size.top, y2: this.size.height - this.size.bottom });
    const draw = of.kind === "areas"
      ? of.lines.map((line, at) => area(line, heights[at], heights[at - 1], this.scales)).reverse()
      : of.lines.map((line, at) => curve(line, heights[at], of.log ? line.mean?.map(logarithm) : line.mean, this.scales));
    fill(this.drawing, s("svg", { viewBox: `0 0 ${this.size.width} ${this.size.height}`, "aria-hidden": "true" },
      frame(of, xs, ys, this.scales, this.size), marks(of.marks ?? [], xs, this.scales, this.size), draw, this.cursor));
    this.point(this.step ?? null);
  }

  // The values at a step; null: at the last one.
  point(step) {
    this.step = step;
    const last = Math.max(...this.of.lines.map((line) => line.x.at(-1)));
    const shown = step ?? last;
    fill(this.at, step === null ? this.of.unit : `${this.of.axis ?? "step"} ${place_of(this.of, step)}`);
    this.of.lines.forEach((line, at) => {
      const place = nearest(line.x, shown);
      const error = line.error?.[place];
      fill(this.rows[at], figure(line.y[place]), error > 0 && ` ± ${figure(error, 2)}`,
        line.x[place] !== shown && h("span", { class: "quiet" }, ` at ${place_of(this.of, line.x[place])}`));
    });
    if (!this.drawn) return;
    const x = this.scales.x(shown);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.cursor.classList.toggle("off", step === null);
  }

  pointer(event) {
    if (!this.drawn) return;
    const box = this.drawing.getBoundingClientRect();
    this.pointed(this.closest(this.scales.back(((event.clientX - box.left) / box.width) * this.size.width)));
  }

  // Opens the point that is nearest to a place of the drawing.
  click(event) {
    if (!this.drawn || !this.opened) return;
    const box = this.drawing.getBoundingClientRect();
    const step = this.closest(this.scales.back(((event.clientX - box.left) / box.width) * this.size.width));
    const high = ((event.clientY - box.top) / box.height) * this.size.height;
    this.open(step, (line, at) => Math.abs(this.scales.y(this.heights[line][at]) - high));
  }

  // far: how far a line's point is from the one that is meant.
  open(step, far = () => 0) {
    const there = this.of.lines.map((line, number) => ({ line, number, at: nearest(line.x, step) })).filter(({ line, at }) => line.x[at] === step);
    const [best] = there.sort((one, other) => far(one.number, one.at) - far(other.number, other.at));
    if (best) this.opened(this.of, best.line, best.at);
  }

  key(event) {
    if (event.key === "Enter") return this.opened && this.open(this.step ?? this.steps().at(-1));
    const way = KEYS[event.key];
    if (way === undefined || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    event.preventDefault();
    const steps = this.steps();
    const from = this.step === null ? steps.length : nearest(steps, this.step);
    const to = Math.min(Math.max(from + way, 0), steps.length - 1);
    this.step = steps[to]; // before the next frame: two keys may come within one
    return this.pointed(this.step);
  }

  // Every step at which a line has a point.
  steps() {
    return [...new Set(this.of.lines.flatMap((line) => line.x))].sort((one, other) => one - other);
  }

  closest(value) {
    const found = this.of.lines.map((line) => line.x[nearest(line.x, value)]);
    return found.reduce((best, one) => (Math.abs(one - value) < Math.abs(best - value) ? one : best));
  }
}

// Only those of a style sheet of ours.
const classes = (line) => line.style.split(" ").filter((one) => STYLES.has(one)).join(" ");

// axis: what lies across where it is not the step, such as hours.
const place_of = (of, value) => of.labels?.[value] ?? (of.axis ? figure(value) : count(value));

const logarithm = (value) => (value > 0 ? Math.log10(value) : NaN);

const ends = (values, errors) =>
  errors?.some((error) => error > 0) ? values.flatMap((value, at) => [value - errors[at], value + errors[at]]) : values;

// Sums of the lines up to each.
function stacked(lines) {
  let below = lines[0].x.map(() => 0);
  return lines.map((line) => {
    const at = new Map(line.x.map((x, place) => [x, line.y[place]]));
    below = below.map((base, place) => base + Math.max(0, at.get(lines[0].x[place]) ?? 0));
    return below;
  });
}

function frame(of, xs, ys, { x, y }, size) {
  const bottom = size.height - size.bottom;
  const whole = of.log_x || !of.axis;
  const round = ticks(...xs, size.across, { whole }).filter((value) => value >= xs[0] - 1e-9).map((value) => (of.log_x ? 10 ** value : value));
  const across = of.labels ? of.labels.map((_, at) => at) : round;
  const decades = of.log && ys[1] - ys[0] >= 1.5;
  const up = ticks(...ys, size.up, { whole: decades });
  const said = decades ? up.map((value) => `1e${Math.round(value)}`) : figures(of.log ? up.map((value) => 10 ** value) : up);
  return [
    up.map((value, at) => [
      s("line", { class: "grid", x1: size.left, x2: size.width - size.right, y1: y(value), y2: y(value) }),
      s("text", { x: size.left - 6, y: y(value) + 4, "text-anchor": "end" }, said[at]),
    ]),
    s("text", { x: size.width - size.right, y: size.height - 1, "text-anchor": "end" }, of.axis ?? "step"),
    across.map((value) => s("text", { x: x(value), y: bottom + 16, "text-anchor": "middle" }, place_of(of, value))),
  ].flat(2);
}

// Steps from which on the run had other settings.
const marks = (found, xs, { x }, size) =>
  found.filter((mark) => mark.x >= xs[0] && mark.x <= xs[1]).map((mark) =>
    s("line", { class: "mark", x1: x(mark.x), x2: x(mark.x), y1: size.top, y2: size.height - size.bottom }));

// means: of the steps around each, where there are more than are drawn.
function curve(line, heights, means, { x, y }) {
  const seen = line.x.map((_, at) => at).filter((at) => Number.isFinite(heights[at]));
  const path = (of) => seen.filter((at) => Number.isFinite(of[at])).map((at) => `${round(x(line.x[at]))},${round(y(of[at]))}`).join(" ");
  const parts = line.band ? [band(line, seen, heights, { x, y })] : [];
  parts.push(s("polyline", { class: `line ${classes(line)}${means ? " measured" : ""}`, points: path(heights) }));
  if (means) parts.push(s("polyline", { class: `line ${classes(line)}`, points: path(means) }));
  if (line.dots === "seen" || seen.length === 1) {
    for (const at of seen) {
      const error = line.error?.[at] ?? 0;
      if (error > 0) parts.push(s("line", { class: `error ${classes(line)}`, x1: x(line.x[at]), x2: x(line.x[at]), y1: y(heights[at] - error), y2: y(heights[at] + error) }));
      parts.push(s("circle", { class: `dot ${classes(line)}`, cx: x(line.x[at]), cy: y(heights[at]), r: 3 }));
    }
  }
  return s("g", {}, parts);
}

// The errors of the points as an area.
function band(line, seen, heights, { x, y }) {
  const edge = (way) => seen.map((at) => `${round(x(line.x[at]))},${round(y(heights[at] + way * line.error[at]))}`);
  return s("polygon", { class: `band ${classes(line)}`, points: [...edge(1), ...edge(-1).reverse()].join(" ") });
}

// Over those below it, which are drawn after it.
function area(line, heights, below, { x, y }) {
  const steps = line.x.length === 1 ? [line.x[0], line.x[0] + 1] : line.x;
  const edge = steps.map((step, at) => `${round(x(step))},${round(y(heights[Math.min(at, heights.length - 1)]))}`);
  const back = steps.map((step, at) => `${round(x(step))},${round(y(below?.[Math.min(at, heights.length - 1)] ?? 0))}`);
  return s("polygon", { class: `area ${classes(line)}`, points: [...edge, ...back.reverse()].join(" ") });
}

const round = (value) => Math.round(value * 10) / 10;
