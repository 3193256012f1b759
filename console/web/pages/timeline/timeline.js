// A step over real time: what its trajectories, the samplers and the learner did, and what to make
// faster. Without a step in the address it is the newest, and follows the run.

import { fill, h } from "../dom.js";
import { count, moment, plural, span } from "../format.js";
import { Asking } from "../measures/asking.js";
import { address, go, here } from "../place.js";
import { Drawing } from "./drawing.js";
import { KINDS, parts, percent, sentence, spent } from "./shares.js";

export class Timeline {
  constructor(run, failed) {
    this.run = run;
    this.failed = failed;
    this.told = null;
    this.asking = new Asking("timeline", () => this.heard());
    this.head = h("div", { class: "steps" });
    this.words = h("div");
    this.drawing = new Drawing((name) => go({ run: this.run, trajectory: name }));
    this.element = h("section", { "aria-label": "timeline" }, this.head, this.words, this.drawing.element);
  }

  enter(main, place, runs) {
    fill(main, this.element);
    this.drawing.element.hidden = true;
    this.at = place.at;
    this.grown(runs);
  }

  leave() {
    this.asking.leave();
    this.drawing.leave();
  }

  // The address has changed.
  moved(place) {
    this.at = place.at;
    this.asking.want({ run: this.run, step: this.at }, this.generation);
  }

  // The runs have changed. A step that is over stays what it is.
  grown(runs) {
    this.generation = runs.find((one) => one.name === this.run)?.generation;
    if (!this.at || !this.told?.ended) this.moved(this);
  }

  heard() {
    if (this.asking.fault) return this.failed(this.asking.fault);
    this.told = this.asking.answer;
    return this.show();
  }

  show() {
    const { told } = this;
    this.drawing.element.hidden = told.step === null;
    if (told.step === null) {
      fill(this.head, h("h1", {}, "Timeline"));
      fill(this.words, h("p", { class: "quiet" }, told.rows
        ? "The trajectories of this run have no time of day: the engine that wrote them did not record when an action began."
        : "This run has no trajectories yet. Its first step comes here as soon as a group is complete."));
      return;
    }
    this.steps();
    this.say();
    this.drawing.show(told);
  }

  steps() {
    const { step, steps: [first, last], window, ended } = this.told;
    const link = (at, text) => h("a", { href: address({ run: this.run, page: "timeline", at: String(at) }) }, text);
    fill(this.head,
      h("h1", {}, `Step ${count(step)}`),
      h("span", { class: "quiet" }, `${moment(window.start)}, ${span(window.ms / 1000)}${ended ? "" : " so far"}`),
      step > first && link(step - 1, `← step ${count(step - 1)}`),
      step < last && link(step + 1, `step ${count(step + 1)} →`),
      this.at !== undefined && h("a", { href: address({ run: this.run, page: "timeline" }) }, "newest"),
      h("a", { href: address({ run: this.run, step_from: String(step), step_to: String(step) }) }, "its trajectories"));
  }

  say() {
    const { shares, idle, phases, bars, left_out, published } = this.told;
    const told = parts(shares);
    const stack = told.map(([kind, share]) => {
      const piece = h("i", { class: `t-${kind}`, title: `${KINDS.get(kind)} ${percent(share)}` });
      piece.style.width = `${share * 100}%`;
      return piece;
    });
    const learner = spent(phases);
    const suites = new Set(phases.filter((one) => one.kind === "evaluation").map((one) => one.name));
    fill(this.words,
      h("p", { class: "shares" }, sentence(shares, idle)),
      h("div", { class: "stack", role: "presentation" }, stack),
      h("ul", { class: "legend" },
        told.map(([kind, , words]) => h("li", {}, h("i", { class: `key t-${kind}` }), words)),
        published.length > 0 && h("li", {}, h("i", { class: "key published" }), "new weights")),
      h("p", { class: "quiet" },
        [`${plural(bars.length, "trajectory", "trajectories")} in flight${left_out ? " that began first; later ones are left out" : ""}`,
          learner && `The learner: ${learner}`,
          suites.size > 0 && `Evaluated: ${[...suites].join(", ")}`].filter(Boolean).join(". "), "."));
  }

  // j and k go from step to step.
  key(event) {
    const way = { j: 1, k: -1 }[event.key];
    if (!way || !this.told?.steps) return;
    const [first, last] = this.told.steps;
    const at = Math.min(Math.max(this.told.step + way, first), last);
    if (at !== this.told.step) go({ ...here(), at: String(at) });
  }
}
