// Sections of plots, each drawn once it is seen; all show their values at the step that is pointed at.

import { fill, h } from "../dom.js";
import { Chart } from "./chart.js";

export class Charts {
  // opened: called with a plot, a line and the place of a point that is chosen; null where none opens.
  constructor(opened = null) {
    this.opened = opened;
    this.charts = new Map(); // by the plot's key
    this.element = h("div");
    this.seen = new IntersectionObserver((found) => found.forEach((one) => this.appear(one)), { rootMargin: "300px" });
  }

  // A plot that stays keeps its element, so a pointer over it, or its focus, stays. An
  // element loses the focus when it is moved, so it is asked for first and given back last.
  draw(sections) {
    const focused = this.element.contains(document.activeElement) ? document.activeElement : null;
    const kept = new Set();
    const blocks = sections.map(({ key, title, note, plots }) =>
      h("section", { "aria-label": title, class: "block" }, title && h("h2", {}, title), note && h("p", { class: "quiet" }, note),
        h("div", { class: `charts of-${key}` }, plots.map((plot) => {
          kept.add(plot.key);
          return this.chart(plot).element;
        }))));
    for (const [key, chart] of this.charts) {
      if (kept.has(key)) continue;
      this.seen.unobserve(chart.element);
      this.charts.delete(key);
    }
    fill(this.element, blocks);
    focused?.focus({ preventScroll: true });
  }

  // All of them, for paper.
  drawAll() {
    for (const chart of this.charts.values()) chart.draw();
  }

  chart(plot) {
    const known = this.charts.get(plot.key);
    const chart = known ?? new Chart((step) => this.point(step), this.opened);
    if (known?.of !== plot) {
      chart.show(plot);
      if (known?.visible) chart.draw();
    }
    if (!known) {
      this.charts.set(plot.key, chart);
      chart.element.chart = chart;
      this.seen.observe(chart.element);
    }
    return chart;
  }

  appear({ target, isIntersecting }) {
    target.chart.visible = isIntersecting;
    if (isIntersecting) {
      target.chart.draw();
      target.chart.point(this.step ?? null);
    }
  }

  // In all plots that are seen.
  point(step) {
    this.step = step;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      for (const chart of this.charts.values()) if (chart.visible) chart.point(step);
    });
  }
}
