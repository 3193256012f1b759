// One run as a whole: what came of it, its warnings, its course, its processes and its recipe.

import { ask } from "../api.js";
import { fill, h } from "../dom.js";
import { count, figure, moment, plural, seconds, span } from "../format.js";
import { address } from "../place.js";
import { Asking } from "./asking.js";

const LOG_MS = 2000;
const FORMS = {
  count: (value) => count(Math.round(value)), duration: span, seconds, small: figure, mean: figure, score: (value) => value.toFixed(3),
  bytes: (value) => `${(value / 2 ** 30).toFixed(1)} GiB`,
};

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
        this.recipe(open), pairs("Versions", Object.entries(told.versions)), commands(told)));
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

function listed(title, lines, kind) {
  return lines.length > 0 && h("section", {}, h("h2", {}, title), h("ul", { class: kind }, lines.map((line) => h("li", {}, line))));
}

function tiles(told) {
  const form = (one) => (value) => (FORMS[one.form] ?? figure)(value);
  const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", { class: "score" }, value));
  const own = told.tiles.filter((one) => one.name !== "steps"); // told beside their plan
  const known = own.map((one) => fact(one.name, one.values ? one.values.map(form(one)).join(" → ") : form(one)(one.value)));
  return h("dl", { class: "facts" },
    fact("steps", told.planned ? `${count(told.steps)} of ${count(told.planned)}` : count(told.steps)),
    told.began && fact("began", moment(told.began)), told.last && fact("last sign", moment(told.last)), known);
}

function suites(told, run) {
  const rows = Object.values(told.suites).flatMap((suite) =>
    ["sampled", "greedy"].filter((way) => suite[way]).map((way) => [suite.title, way, suite[way]]));
  const score = (one) => one && [figure(one.mean), h("span", { class: "quiet" }, ` ± ${figure(one.stderr)}`)];
  return rows.length > 0 && h("section", {}, h("h2", {}, "Evaluated suites"),
    h("p", { class: "quiet" }, "Mean rewards with their standard errors; where rewards are 0 or 1, the share of right answers. ",
      h("a", { href: address({ run, page: "evaluations" }) }, "Which questions changed"), "."),
    table(["suite", "asked", "questions", "first", "last", "steps"], rows.map(([title, way, found]) =>
      [title, way, count(found.n), score(found.before), score(found.after), found.steps.map(count).join(" → ")])));
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

function breakdowns(told) {
  return told.breakdowns.map((one) => h("section", {}, h("h2", {}, one.title), h("p", { class: "quiet" }, `${seconds(one.seconds)}, means of the run`),
    table(["part", "time", "share", "what it is"], one.parts.map((part) =>
      [part.name, seconds(part.seconds), `${Math.round((100 * part.seconds) / one.seconds)} %`, part.what]))));
}

function commands(told) {
  return h("section", {}, h("h2", {}, "Commands"),
    h("dl", { class: "commands" }, told.commands.map((one) => [h("dt", {}, one.what), h("dd", {}, h("code", {}, one.command))])));
}

function pairs(title, rows) {
  return rows.length > 0 && h("section", {}, h("h2", {}, title), table(["", "version"], rows));
}

const FEW = 20; // letters that stay in one line

const letters = (cell) => [cell].flat().map((part) => part?.textContent ?? part ?? "").join("").length;

function table(heads, rows) {
  return h("div", { class: "scroll" }, h("table", { class: "listed" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", { class: letters(cell) <= FEW ? "few" : "" }, cell)))))));
}
