// Two evaluations of a suite: how many questions got a better or a worse reward, and which.

import { Refused } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { count, judged, plural, reward } from "../format.js";
import { address, go, here } from "../place.js";
import { Asking } from "./asking.js";

export class Flips {
  constructor(run, failed) {
    this.run = run;
    this.failed = failed;
    this.asking = new Asking("flips", () => this.heard());
    this.element = h("section", { class: "flips", "aria-label": "evaluations" }, h("p", { class: "line" }, "reading the run …"));
  }

  enter(main, _place, runs) {
    fill(main, this.element);
    this.grown(runs);
  }

  leave() {
    this.asking.leave();
  }

  moved() {
    const { suite, step_from: before, step_to: after } = here();
    this.asking.want({ run: this.run, suite, before, after }, this.generation);
  }

  grown(runs) {
    this.generation = runs.find((one) => one.name === this.run)?.generation;
    this.moved();
  }

  heard() {
    const { fault, answer: told } = this.asking;
    if (fault instanceof Refused) return this.failed(fault);
    if (fault) return fill(this.element, h("p", { class: "fault" }, fault.message));
    if (!told.suite) return fill(this.element, h("p", { class: "line" }, "No suite was evaluated twice yet. Questions that change come here then."));
    const { steps } = told.suites.find(({ name }) => name === told.suite);
    refill(this.element, h("h1", {}, "Two evaluations"),
      h("p", { class: "filters" },
        choice("suite", told.suites.map(({ name }) => name), told.suite, (suite) => ({ suite, step_from: "", step_to: "" })),
        " step ", choice("step_from", steps, told.before), " → ", choice("step_to", steps, told.after)),
      h("p", { class: "line", role: "status" }, `${plural(told.fell, "question")} got a lower reward, ${count(told.rose)} a higher one, ${count(told.same)} the same.`,
        told.rows.length < told.fell + told.rose && ` The largest ${count(told.rows.length)} are listed.`),
      told.rows.length > 0 && h("table", { class: "listed" },
        h("thead", {}, h("tr", {}, ["question", "before", "after"].map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, told.rows.map((row) => this.row(row)))));
    return undefined;
  }

  row({ name, other, reward: was, became, said, says, question }) {
    const cell = (value, words) => h("td", {}, h("b", { class: judged(value) }, reward(value)), h("span", { class: "what text", dir: "ltr" }, words));
    return h("tr", {},
      h("td", { dir: "ltr" }, h("a", { href: address({ run: this.run, trajectory: name, beside: other }) }, question || name)),
      cell(was, said), cell(became, says));
  }
}

function choice(name, values, chosen, place = (value) => ({ [name]: String(value) })) {
  const change = (event) => go({ ...here(), ...place(values[event.target.value]) }, { replace: true });
  return h("select", { id: `of-${name}`, "aria-label": name.replace("_", " "), onchange: change },
    values.map((value, at) => h("option", { value: at, selected: value === chosen }, value)));
}
