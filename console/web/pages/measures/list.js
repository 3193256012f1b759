// The list of runs: the state of each, how far it is, what it was measured by. It follows the runs, and
// those that begin meanwhile.

import { Refused } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { count, figure, moment, plural, span } from "../format.js";
import { head } from "../heads.js";
import { address, go, here } from "../place.js";
import { Asking } from "./asking.js";
import { range } from "../figures/scale.js";
import { s } from "../figures/svg.js";

const BADGES = { running: "live", done: "", failed: "bad", stopped: "", killed: "bad", unknown: "" };
const SPARK = { width: 100, height: 24 };
const score = (told) => (told?.suites[0]?.after ?? told?.suites[0]?.before)?.mean;

// [name in the address, title, class, value to sort by, content of the cell]
const COLUMNS = [
  ["name", "run", "", (run) => run.name, null],
  ["steps", "steps", "number made", (_, told) => told?.steps, steps],
  ["reward", "reward", "rewarded", (_, told) => told?.reward, rewards],
  ["suites", "suites", "suites", (_, told) => score(told), suites],
  ["", "what came of it", "came", null, came],
  ["began", "start", "few", (_, told) => told?.began, (_, told) => moment(told?.began)],
  ["seconds", "duration", "few", (_, told) => told?.seconds, (_, told) => span(told?.seconds)],
  ["rows", "trajectories", "number recorded", (run) => run.rows, (run) => h("a", { href: address({ run: run.name }) }, count(run.rows))],
];

export class Runs {
  constructor(_run, failed) {
    this.failed = failed;
    this.asked = new Map(); // by the run's name: its summary
    this.chosen = new Set();
    this.find = h("input", {
      type: "search", id: "find", placeholder: "a run, a state, a result", "aria-label": "find a run", title: "press / to come here",
      autocomplete: "off", oninput: () => go({ ...here(), find: this.find.value.trim() }, { replace: true }),
    });
    this.compare = h("span");
    this.line = h("span", { class: "quiet", role: "status" });
    this.heads = h("tr");
    this.body = h("tbody");
    this.element = h("section", { "aria-label": "runs" },
      h("h1", {}, "Runs"),
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, this.find, this.compare, this.line),
      h("table", { class: "listed" }, h("thead", {}, this.heads), this.body));
  }

  enter(main, place, runs) {
    fill(main, this.element);
    this.find.value = place.find ?? "";
    this.grown(runs);
  }

  moved() {
    this.show();
  }

  leave() {
    for (const asking of this.asked.values()) asking.leave();
  }

  grown(runs) {
    this.runs = runs;
    for (const { name, measured } of runs) {
      if (!this.asked.has(name)) this.asked.set(name, new Asking("summary", () => this.heard(name), () => this.runs.length));
      this.asked.get(name).want({ run: name }, measured || undefined);
    }
    this.show();
  }

  heard(name) {
    const { fault } = this.asked.get(name);
    if (fault instanceof Refused) this.failed(fault);
    else if (this.element.isConnected) this.show();
  }

  show() {
    const { sort = "", descending = "true", find = "" } = here();
    const words = find.toLowerCase().split(/\s+/).filter(Boolean);
    const told = (run) => this.asked.get(run.name)?.answer;
    const said = (run) => [run.name, run.folder, told(run)?.word, told(run)?.headline].join(" ").toLowerCase();
    const found = this.runs.filter((run) => words.every((word) => said(run).includes(word)));
    const by = COLUMNS.find(([name]) => name && name === sort)?.[3];
    if (by) found.sort((one, other) => compared(by(one, told(one)), by(other, told(other)), descending === "true"));
    refill(this.heads, h("th", { scope: "col", "aria-label": "compare" }), COLUMNS.map(([by, title, kind]) => head({ by, title, kind })));
    refill(this.body, found.map((run) => this.row(run, this.asked.get(run.name))));
    fill(this.line, found.length < this.runs.length && `${count(found.length)} of ${plural(this.runs.length, "run")}`);
    const names = this.runs.map(({ name }) => name).filter((name) => !this.chosen.size || this.chosen.has(name));
    fill(this.compare, names.length > 1 && h("a", { href: address({ run: names[0], page: "curves", with: names.slice(1) }) },
      this.chosen.size ? `Compare ${count(names.length)} runs` : "The curves of all over each other"));
  }

  row(run, { answer: told, fault }) {
    const at = this.runs.indexOf(run);
    const choose = (event) => {
      this.chosen[event.target.checked ? "add" : "delete"](run.name);
      this.show();
    };
    return h("tr", {},
      h("td", {}, h("input", { type: "checkbox", id: `compare-${at}`, checked: this.chosen.has(run.name), "aria-label": `compare ${run.name}`, onchange: choose })),
      COLUMNS.map(([, , kind, , content]) => content ? h("td", { class: kind }, content === came && fault ? h("span", { class: "fault" }, fault.message) : content(run, told)) : h("th", { scope: "row" },
        h("a", { href: address({ run: run.name, page: "run" }), id: `run-${at}` }, run.name),
        told && h("span", { class: `badge ${BADGES[told.word]}`, title: told.sentence }, told.word),
        h("span", { class: "quiet path" }, run.folder))));
  }
}

// Unknown values come last in both directions.
function compared(one, other, down) {
  const [none, nor] = [one, other].map((value) => value === undefined || value === null);
  if (none || nor) return none - nor;
  const order = typeof one === "string" ? one.localeCompare(other) : one - other;
  return down ? -order : order;
}

function steps(run, told) {
  return told && h("a", { href: address({ run: run.name, page: "curves" }) }, told.planned ? `${count(told.steps)} of ${count(told.planned)}` : count(told.steps));
}

// The rewards of the steps as a small curve, and the newest one.
function rewards(_, told) {
  if (!told?.rewards.length) return null;
  const [xs, ys] = [0, 1].map((at) => range(told.rewards.map((point) => point[at])));
  const at = (value, [low, high], size) => (1 + ((value - low) / (high - low)) * (size - 2)).toFixed(1);
  const points = told.rewards.map(([x, y]) => `${at(x, xs, SPARK.width)},${(SPARK.height - at(y, ys, SPARK.height)).toFixed(1)}`);
  return [s("svg", { class: "spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, "aria-hidden": "true" },
    s("polyline", { class: "line c0", points: points.join(" ") })), h("span", {}, figure(told.reward))];
}

function suites(_, told) {
  return told?.suites.map(({ title, before, after }) =>
    h("span", { class: "suite" }, h("span", { class: "quiet" }, title), ` ${figure(before.mean)}`, after && [" → ", h("b", {}, figure(after.mean))]));
}

function came(_, told) {
  return told ? [told.headline, told.control && h("span", { class: "badge" }, "control: learning rate 0"),
    told.doubts > 0 && h("span", { class: "badge bad" }, plural(told.doubts, "warning"))] : "reading …";
}
