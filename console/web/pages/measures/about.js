// One run as a whole: what came of it, its warnings, its course, its processes and its recipe.

import { ask } from "../api.js";
import { fill, h } from "../dom.js";
import { count, moment, plural, span } from "../format.js";
import { address } from "../place.js";
import { Asking } from "./asking.js";
import { before, breakdowns, commands, tiles, versions } from "./parts.js";
import { listed, table } from "../figures/parts.js";

const LOG_MS = 2000;

export class About {
  constructor(run, failed) {
    this.run = run;
    this.failed = failed;
    this.element = h("article", { class: "about" }, h("p", { class: "line" }, "reading the run …"));
    this.asking = new Asking("about", () => this.heard());
    this.find = h("input", {
      type: "search", id: "find-key", placeholder: "a key or a value", "aria-label": "find in the recipe", autocomplete: "off",
      oninput: () => this.keys(),
    });
    this.settings = h("tbody");
  }

  enter(main, _place, runs) {
    fill(main, this.element);
    this.grown(runs);
  }

  leave() {
    this.asking.leave();
  }

  moved() {}

  grown(runs) {
    const { measured } = runs.find((one) => one.name === this.run) ?? {};
    this.asking.want({ run: this.run }, measured || undefined);
  }

  heard() {
    if (this.asking.fault) return this.failed(this.asking.fault);
    this.told = this.asking.answer;
    return this.show();
  }

  show() {
    const { told } = this;
    const open = new Set([...this.element.querySelectorAll("details[open]")].map((one) => one.id));
    const focused = this.element.contains(document.activeElement) ? document.activeElement : null;
    fill(this.element,
      h("h1", {}, told.headline), told.why && h("p", { class: "quiet" }, told.why),
      told.about.lead && h("p", {}, told.about.lead),
      listed("Warnings", told.doubts, "fault"), listed("Remarks", told.remarks, ""),
      tiles(told), h("div", { class: "parts-of" }, suites(told, this.run), course(told), breakdowns(told), this.processes(told),
        this.recipe(open), versions(told), commands(told)));
    for (const one of this.element.querySelectorAll("details")) if (open.has(one.id)) one.open = true;
    focused?.focus({ preventScroll: true });
  }

  processes(told) {
    const state = new Map(told.course.processes.map((one) => [one.name, one]));
    return told.processes.length > 0 && h("section", {}, h("h2", {}, "Processes"),
      table(["process", "state", "address", "command"], told.processes.map((one) => {
        const { state: is = "", status = null, address = "" } = state.get(one.name) ?? {};
        return [[one.name, one.what && h("span", { class: "quiet what" }, one.what)], status === null ? is : `${is}, status ${status}`, address, h("code", {}, one.command)];
      })),
      told.course.processes.filter(({ log }) => log).map(({ name }) => this.log(name)));
  }

  // The end of a process's log, which is read again while it is open.
  log(name) {
    const text = h("pre", { class: "text", dir: "ltr" });
    let timer = 0;
    const read = async () => {
      clearTimeout(timer);
      if (!element.open || !element.isConnected) return;
      const { text: end, cut } = await ask("log", { run: this.run, process: name }).catch(({ message }) => ({ text: message }));
      const below = text.scrollHeight - text.scrollTop - text.clientHeight < 4;
      fill(text, cut > 0 && `… ${count(cut)} bytes before\n`, end || "empty");
      if (below) text.scrollTop = text.scrollHeight;
      timer = setTimeout(read, LOG_MS);
    };
    const element = h("details", { class: "log", id: `log-${name}`, ontoggle: read }, h("summary", {}, `log of ${name}`), text);
    return element;
  }

  recipe(open) {
    const { values, recipe } = this.told.settings;
    const many = Object.keys(values).length;
    this.keys();
    return many > 0 && h("section", {}, h("h2", {}, "Recipe"),
      h("p", { class: "quiet" }, "As the processes read it, secrets taken out", recipe && [", from ", h("code", {}, recipe)], "."),
      h("details", { id: "keys", open: open.has("keys") }, h("summary", {}, plural(many, "key")), this.find,
        h("table", { class: "keys" }, this.settings)));
  }

  // The keys that have all the words.
  keys() {
    const words = this.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = Object.entries(this.told.settings.values).filter((pair) => words.every((word) => pair.join(" ").toLowerCase().includes(word)));
    fill(this.settings, found.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, h("code", {}, value)))));
  }
}

function suites(told, run) {
  return before(told, h("a", { href: address({ run, page: "evaluations" }) }, "Which questions changed"));
}

function course({ word, sentence, course: { starts, stages, ended } }) {
  const all = stages.reduce((sum, stage) => sum + stage.seconds, 0);
  return starts.length > 0 && h("section", {}, h("h2", {}, "Course"),
    h("ul", {}, starts.map((start) => h("li", {}, moment(start.at), start.host && ` on ${start.host}`, ": ", h("code", {}, start.command)))),
    stages.length > 0 && table(["stage", "began", "took", "share"], stages.map((stage) =>
      [stage.text, moment(stage.at), span(stage.seconds), all > 0 && `${Math.round((100 * stage.seconds) / all)} %`])),
    ended ? h("p", { class: ended.status ? "fault" : "" }, `${moment(ended.at)}: ended with status ${ended.status}, ${ended.sentence}`)
      : h("p", { class: word === "killed" ? "fault" : "quiet" }, `${word}: ${sentence}`));
}
