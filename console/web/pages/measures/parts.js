// Parts of a page that tells what runs came to. They draw figures of a report; a part without any is false.

import { h } from "../dom.js";
import { bar, facts, score, table } from "../figures/parts.js";
import { count, figure, moment, seconds, span } from "../format.js";

const FORMS = {
  count: (value) => count(Math.round(value)), duration: span, seconds, small: figure, mean: figure, score: (value) => value.toFixed(3),
  bytes: (value) => `${(value / 2 ** 30).toFixed(1)} GiB`,
};

export function tiles(told) {
  const form = (one) => (value) => (FORMS[one.form] ?? figure)(value);
  const own = told.tiles.filter((one) => told.steps === undefined || one.name !== "steps"); // told beside their plan
  const known = own.map((one) => [one.name, one.values ? one.values.map(form(one)).join(" → ") : form(one)(one.value)]);
  const steps = told.planned ? `${count(told.steps)} of ${count(told.planned)}` : told.steps === undefined ? null : count(told.steps);
  return facts([["steps", steps], ["began", moment(told.began)], ["last sign", moment(told.last)]].filter(([, value]) => value).concat(known));
}

// Rows of suites and runs, each by the place of its figures.
export function before(told, more = null) {
  const rows = told.rows.map((row) => ({ ...row, found: row.at.reduce((one, part) => one[part], told) }));
  const ways = ["sampled", "greedy"].filter((way) => rows.some(({ found }) => found[way]));
  const both = (one) => (one ? [score(one.before), one.after ? score(one.after) : "not yet"] : ["–", "–"]);
  const steps = (found) => found[ways.find((way) => found[way])].steps.map(count).join(" → ");
  return rows.length > 0 && h("section", {}, h("h2", {}, "Before and after"), told.about.before && h("p", {}, told.about.before),
    table(["", "questions", ...ways.flatMap((way) => [`${way}, before`, "after"]), "steps"], rows.map(({ name, main, found }) =>
      [main && rows.length > 1 ? h("b", {}, name) : name, count(found.n), ...ways.flatMap((way) => both(found[way])), steps(found)])),
    h("p", { class: "quiet" }, "Mean rewards; ± is one standard error over questions.", told.about.note && ` ${told.about.note}`, more && [" ", more, "."]));
}

export function breakdowns(told) {
  return told.breakdowns.map((one) => h("section", {}, h("h2", {}, one.title), h("p", { class: "quiet" }, `${seconds(one.seconds)}, means of the run`), bar(one.parts.map(({ seconds: value }) => ({ value }))),
    table(["part", "time", "share", "what it is"], one.parts.map((part, at) =>
      [[h("i", { class: `swatch c${at}` }), ` ${part.name}`], seconds(part.seconds), `${Math.round((100 * part.seconds) / one.seconds)} %`, part.what]))));
}

export function commands(told) {
  return h("section", {}, h("h2", {}, "Commands"),
    h("dl", { class: "commands" }, told.commands.map((one) => [h("dt", {}, one.what), h("dd", {}, h("code", {}, one.command))])));
}

export function versions(told) {
  const rows = Object.entries(told.versions);
  return rows.length > 0 && h("section", {}, h("h2", {}, "Versions"), table(["", "version"], rows));
}
