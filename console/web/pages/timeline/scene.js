// Where everything of a timeline stands: pure, in pixels. x is time, from the left edge on.

export const EDGE = { left: 56, right: 10, top: 22 };
const ROW = 15; // of the learner's and the evaluations' phases
const PLOT = 54;
const GAP = 12;
const LANES = { least: 3, most: 14, all: 620 };

// told: what the server says of a step. width: of the drawing.
export function scene(told, width) {
  const ms = told.window.ms;
  const inner = Math.max(width - EDGE.left - EDGE.right, 50);
  const lanes = 1 + Math.max(0, ...told.bars.map((bar) => bar.lane));
  const lane = Math.min(LANES.most, Math.max(LANES.least, Math.floor(LANES.all / lanes)));
  const rows = ["learner", "evaluation"].filter((kind) => told.phases.some((one) => one.kind === kind));
  const tops = {};
  let y = EDGE.top;
  for (const kind of rows) [tops[kind], y] = [y, y + ROW + 3];
  for (const plot of ["load", "tokens"]) [tops[plot], y] = [y + GAP, y + GAP + PLOT];
  tops.bars = y + GAP;
  return {
    ms, width, lane, rows, tops, inner, row: ROW, plot: PLOT, height: tops.bars + lanes * lane + 4,
    x: (at) => EDGE.left + (Math.min(Math.max(at, 0), ms) / ms) * inner,
    time: (x) => Math.min(Math.max((x - EDGE.left) / inner, 0), 1) * ms,
    y: (bar) => tops.bars + bar.lane * lane,
  };
}

// One path for all spans of a kind: rectangles that the style sheet colours.
export function paths(bars, at) {
  const found = new Map();
  const high = Math.max(at.lane - 1, 2);
  for (const bar of bars) {
    for (const [kind, from, to] of bar.spans) {
      if (to <= 0 || from >= at.ms) continue;
      const x = at.x(from);
      const wide = Math.max(at.x(to) - x, 0.4);
      found.set(kind, `${found.get(kind) ?? ""}M${x.toFixed(1)} ${at.y(bar)}h${wide.toFixed(1)}v${high}h-${wide.toFixed(1)}z`);
    }
  }
  return found;
}

// The path of an area over equal parts of the window. most: the value at the top.
export function area(values, top, at, most) {
  const wide = at.inner / values.length;
  const y = (value) => (top + at.plot - (most ? value / most : 0) * at.plot).toFixed(1);
  const steps = values.map((value, part) => `V${y(value)}H${(EDGE.left + (part + 1) * wide).toFixed(1)}`);
  return `M${EDGE.left} ${top + at.plot}${steps.join("")}V${top + at.plot}z`;
}

// Times at which the axis has a number: a dozen at most, at round seconds.
export function ticks(ms, most) {
  const rough = ms / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return Array.from({ length: Math.min(Math.floor(ms / step) + 1, 50) }, (_, at) => at * step);
}

// The bar at a place of the drawing; undefined where none is.
export function barAt(bars, at, x, y) {
  const lane = Math.floor((y - at.tops.bars) / at.lane);
  const time = at.time(x);
  return bars.find((bar) => bar.lane === lane && bar.spans.length && bar.spans[0][1] <= time && time <= bar.spans.at(-1)[2]);
}

// From a bar to the next one in a direction: in its lane, or at that time in another one.
export function neighbour(bars, bar, key) {
  const start = bar.spans[0][1];
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const own = bars.filter((one) => one.lane === bar.lane);
    return own[own.indexOf(bar) + (key === "ArrowRight" ? 1 : -1)] ?? bar;
  }
  const lane = bar.lane + (key === "ArrowDown" ? 1 : -1);
  const there = bars.filter((one) => one.lane === lane);
  const far = (one) => Math.abs(one.spans[0][1] - start);
  return there.reduce((best, one) => (far(one) < far(best) ? one : best), there[0]) ?? bar;
}
