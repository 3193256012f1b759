// The report of one run, or of several: the figures of summary.json.

import { h } from "../dom.js";
import { count, moment, plural, span } from "../format.js";
import { Charts } from "../figures/charts.js";
import { listed, score, table, trajectory, written } from "../figures/parts.js";
import { before, breakdowns, commands, tiles, versions } from "../measures/parts.js";

const MARKS = { rose: "good", fell: "bad", "nothing to learn from": "bad", collapsed: "bad" };

export function report(told) {
  const [curve, rest] = [new Charts(), new Charts()];
  const all = told.sections.map((section) => ({ ...section, plots: section.plots.filter(({ key }) => key !== "curve") }));
  const first = told.sections.flatMap(({ plots }) => plots).filter(({ key }) => key === "curve");
  if (first.length) curve.draw([{ key: "curve", title: "Learning curve", plots: first.map((plot) => ({ ...plot, title: "Rewards of training and of evaluations", wide: true })) }]);
  rest.draw(all.filter(({ plots }) => plots.length));
  const parts = h("article", { class: "about" },
    h("h1", {}, told.headline), told.about.lead && h("p", { class: "quiet" }, told.about.lead),
    h("p", {}, h("b", { class: `verdict ${MARKS[told.verdict] ?? ""}` }, told.verdict), ": ", told.why),
    listed("Warnings", told.doubts, "fault"), listed("Remarks", told.remarks, "quiet"), tiles(told), pages(told),
    before(told), curve.element, evaluations(told), rest.element, breakdowns(told), stages(told), samples(told),
    commands(told), processes(told), versions(told), settings(told),
    h("footer", { class: "quiet" }, told.started && `Started ${moment(Date.parse(told.started) / 1000)}. `,
      "Every figure of this page is in summary.json beside it, and comes from the files of the run folder."));
  return { parts, charts: { drawAll: () => [curve, rest].forEach((one) => one.drawAll()) } };
}

function pages({ pages: found }) {
  return found.length > 0 && h("p", {}, "As it grew: ",
    found.map(({ what, file }, at) => [at > 0 && ", ", h("a", { href: file.split("/").map(encodeURIComponent).join("/") }, what)]));
}

function evaluations({ evaluations: rows }) {
  return rows.length > 0 && h("details", {}, h("summary", {}, `${plural(rows.length, "evaluation")} as a table`),
    table(["run", "step", "suite", "questions", "mean reward"], rows.map((one) =>
      [one.run, count(one.step), one.suite, count(one.n), score(one)])));
}

function stages({ stages: found }) {
  return found.length > 0 && h("section", {}, h("h2", {}, "The whole"), table(["stage", "took"], found.map((one) => [one.name, span(one.seconds)])));
}

function samples({ samples: found }) {
  return found.length > 0 && h("section", {}, h("h2", {}, "Trajectories"),
    h("p", { class: "quiet" }, "The same questions under the first and the last weights that were evaluated."), written(),
    found.map((one) => [h("h3", {}, `${one.suite}, step ${count(one.step)}`),
      one.samples.map((sample) => trajectory({ ...sample, good: sample.reward > 0 }))]));
}

function processes({ processes: found }) {
  return found.length > 0 && h("section", {}, h("h2", {}, "Processes"),
    table(["process", "command"], found.map((one) => [[one.name, one.what && h("span", { class: "quiet what" }, one.what)], h("code", {}, one.command)])));
}

function settings({ settings: { recipe, values } }) {
  const rows = Object.entries(values);
  return rows.length > 0 && h("section", {}, h("h2", {}, "Settings"),
    h("p", { class: "quiet" }, "The recipe as the processes read it, secrets taken out", recipe && [", from ", h("code", {}, recipe)], "."),
    h("details", {}, h("summary", {}, plural(rows.length, "key")), table(["key", "value"], rows.map((pair) => pair.map((one) => h("code", {}, one))))));
}
