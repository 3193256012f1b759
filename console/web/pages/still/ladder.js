// Variations of one recipe: their means and differences, their curves, their runs. The figures of ablate.json.

import { h } from "../dom.js";
import { plural } from "../format.js";
import { Charts } from "../figures/charts.js";
import { table } from "../figures/parts.js";
import { style_of } from "../measures/plots.js";

export function ladder(told) {
  const charts = new Charts();
  const [first, ...plots] = told.plots;
  const note = "Means over seeds; the area around a line is one standard error over seeds.";
  charts.draw([{ key: "curve", title: "Learning curves", note, plots: first ? [{ ...first, wide: true }] : [] }, { key: "more", title: "Other figures", plots }].filter((one) => one.plots.length));
  const [main, others] = [true, false].map((is) => told.measures.filter((one) => one.main === is));
  const parts = h("article", { class: "about" },
    h("h1", {}, `${plural(told.rows.length - 1, "variation")} of one recipe`), h("p", { class: "quiet" }, h("code", {}, told.recipe)),
    figures(told, main), told.legend.map((line) => h("p", { class: "quiet" }, line)), charts.element,
    others.length > 0 && h("section", {}, h("h2", {}, "Other suites"), figures(told, others)),
    h("section", {}, h("h2", {}, "What each variation changes"), told.rows.map(changes)),
    h("section", {}, h("h2", {}, "Runs"), table(["run", "seed", "", "steps", ...main.map(({ title }) => title)], told.rows.flatMap((row) => row.runs.map((run) =>
      [run.report ? h("a", { href: run.report }, row.name) : row.name, run.seed, run.ended, run.steps, ...main.map(({ key }) => run.shown[key] ?? "-")])))),
    h("section", {}, h("h2", {}, "Columns"), h("ul", {}, told.measures.map((one) => h("li", {}, `${one.title}: ${one.what}`)))),
    h("footer", { class: "quiet" }, "Every figure of this page is in ablate.json beside it, and comes from the files of the runs."));
  return { parts, charts };
}

function figures(told, columns) {
  const rows = told.rows.flatMap((row, place) => {
    const done = row.runs.filter(({ word }) => word === "done").length;
    const name = [h("i", { class: `swatch ${style_of(place)}` }), " ", place ? row.name : h("b", {}, row.name)];
    const means = [name, `${done}/${row.runs.length}`, ...columns.map(({ key }) => row.shown[key])];
    const differs = ({ key }) => h("span", { class: ["higher", "lower"].includes(row.differences[key].against) ? "found" : "quiet" }, row.shown_differences[key]);
    return Object.keys(row.differences).length ? [means, [h("span", { class: "quiet" }, "less base"), "", ...columns.map(differs)]] : [means];
  });
  return table(["", "runs", ...columns.map(({ title, what }) => h("span", { title: what }, title))], rows);
}

function changes(row) {
  const rows = Object.entries(row.changes).map(([key, both]) => [h("code", {}, key), ...both.map((one) => one || "none")]);
  return rows.length > 0 && [h("h3", {}, row.name), table(["key", "base", row.name], rows),
    h("p", { class: "quiet" }, row.shares_policy ? "Training begins with the policy that the base's run of the same seed made." : "Its runs make, or name, the policy that they begin with."),
    row.remarks.length > 0 && h("ul", { class: "fault" }, row.remarks.map((line) => h("li", {}, line)))];
}
