// Curves of several runs over each other, by steps or by hours, and what their recipes differ in.

import { fill, h } from "../dom.js";
import { count, plural } from "../format.js";
import { Charts } from "../figures/charts.js";
import { listed, score, table } from "../figures/parts.js";
import { CLOSED, laid, over_hours, style_of } from "../measures/plots.js";

export function comparison(told) {
  const [charts, others] = [new Charts(), new Charts()];
  const closed = h("details", {});
  const draw = (hours) => {
    const answers = told.runs.map(({ name, sections, clock }, place) => ({ place, name, sections: hours ? over_hours(sections, clock) : sections }));
    const all = (answers.length > 1 ? laid(answers) : answers[0].sections).map((section) => ({
      ...section, plots: section.plots.map((plot) => ({ ...plot, means: `mean over the last ${told.window} steps` })),
    }));
    charts.draw(all.filter(({ key }) => key !== CLOSED));
    const rest = all.filter(({ key }) => key === CLOSED);
    others.draw(rest);
    closed.hidden = !rest.length;
    fill(closed, h("summary", {}, plural(rest[0]?.plots.length ?? 0, "other metric")), others.element);
  };
  draw(false);
  const over = (name, hours) => h("label", { class: "chip" }, h("input", { type: "radio", name: "axis", id: name, checked: !hours, onchange: () => draw(hours) }), name);
  const parts = h("article", { class: "about" },
    h("h1", {}, plural(told.runs.length, "run")),
    h("ul", { class: "legend" }, told.runs.map((run, place) => h("li", {}, h("i", { class: `swatch ${style_of(place)}` }),
      ` ${run.name}, ${plural(run.steps, "step")}, ${run.clock.hours.at(-1).toFixed(2)} h`))),
    listed("Remarks", told.remarks, "quiet"), evaluations(told),
    h("fieldset", { class: "chips", "aria-label": "over" }, over("by step", false), over("by hours of training", true)),
    charts.element, differences(told), closed);
  return { parts, charts: { drawAll: () => [charts, others].forEach((one) => one.drawAll()) } };
}

// First and last measurements of each suite.
function evaluations({ runs, suites }) {
  const none = runs.filter((_, at) => suites.every(({ changes }) => !changes[at])).map(({ name }) => name);
  const at = (one, step) => [score(one), ` at ${count(step)}`];
  const cell = (one) => one ? [one.after && [at(one.before, one.steps[0]), ", "], at(one.after ?? one.before, one.steps.at(-1)), `, n = ${count(one.n)}`] : "none";
  return h("section", {}, h("h2", {}, "Evaluations"), none.length > 0 && h("p", { class: "quiet" }, `Without evaluations: ${none.join(", ")}.`),
    suites.length > 0 && [
      h("p", { class: "quiet" }, "Mean rewards at the first and the last step that were evaluated; ± is one standard error, n the rows of the last."),
      table(["suite", "sampling", ...runs.map(({ name }) => name)], suites.map((suite) => [suite.name, suite.sampling, ...suite.changes.map(cell)])),
    ]);
}

function differences({ runs, differences: rows }) {
  return h("section", {}, h("h2", {}, "What the recipes differ in"),
    rows.length ? table(["key", ...runs.map(({ name }) => name)], rows) : h("p", { class: "quiet" }, "Nothing."));
}
