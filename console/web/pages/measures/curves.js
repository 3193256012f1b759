// The curves of a run, and of others beside it: sections of plots, which follow the runs as they grow.

import { Refused } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { plural, words } from "../format.js";
import { go, here } from "../place.js";
import { plain } from "../visible.js";
import { Asking } from "./asking.js";
import { Charts } from "../figures/charts.js";
import { CLOSED, COLOURS, from_point, joined, laid, matching } from "./plots.js";

const TYPING_MS = 200;

export class Curves {
  constructor(run, failed) {
    this.run = run;
    this.failed = failed;
    this.measured = new Map(); // by the run's name: what the learner measured of it
    this.split = new Map(); //     and what its trajectories tell
    this.charts = new Charts((plot, line, at) => this.open(plot, line, at));
    this.find = h("input", {
      type: "search", id: "find", placeholder: "a curve's name", "aria-label": "find a curve", title: "press / to come here",
      autocomplete: "off", oninput: () => this.typed(),
    });
    this.others = h("fieldset", { class: "chips", "aria-label": "runs" });
    this.parts = h("fieldset", { class: "chips", "aria-label": "sections" });
    this.label = h("label", { class: "tick", for: "by" });
    this.line = h("p", { class: "line", role: "status" });
    this.element = h("section", { "aria-label": "curves" },
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, this.find, this.label, this.parts, this.others),
      this.line, this.charts.element);
  }

  enter(main, place, runs) {
    fill(main, this.element);
    this.runs = runs;
    this.moved(place);
  }

  leave() {
    clearTimeout(this.timer);
    for (const asking of [...this.measured.values(), ...this.split.values()]) asking.leave();
    this.measured.clear();
    this.split.clear();
  }

  // The address has changed.
  moved(place) {
    this.find.value = document.activeElement === this.find ? this.find.value : (place.find ?? "");
    this.by = place.by;
    this.chosen = this.runs.filter((one) => one.name === this.run || place.with?.includes(one.name));
    this.grown(this.runs);
    this.show();
  }

  // The runs have changed.
  grown(runs) {
    this.runs = runs;
    for (const { name } of this.chosen) {
      const { measured, generation } = runs.find((one) => one.name === name) ?? {};
      this.asking(this.measured, "curves", name).want({ run: name }, measured || undefined);
      this.asking(this.split, "split", name).want({ run: name, by: this.by }, generation);
    }
  }

  asking(all, what, name) {
    if (!all.has(name)) all.set(name, new Asking(what, () => this.heard(all.get(name))));
    return all.get(name);
  }

  heard({ fault }) {
    if (fault instanceof Refused) this.failed(fault);
    else if (this.element.isConnected) this.show();
  }

  // What there is to show of a run by now: {name, place, sections, fault}, place: which colour it has.
  told(name) {
    const [measured, split] = [this.measured.get(name), this.split.get(name)];
    const sections = joined(measured?.answer?.sections ?? [], split?.answer?.sections ?? []);
    const place = this.runs.findIndex((one) => one.name === name);
    return { name, place, sections, fault: (measured?.fault ?? split?.fault)?.message };
  }

  choose(place, told) {
    const shown = place.section;
    const sections = [...new Map(told.flatMap((one) => one.sections.map(({ key, title }) => [key, title])))];
    const all = sections.map(([key]) => key);
    this.labels();
    const open = (key) => (shown ? shown.includes(key) : key !== CLOSED);
    refill(this.parts, sections.map(([key, title]) => chip(title, open(key), "", `section-${key}`, (on) => {
      const now = all.filter((one) => (one === key ? on : open(one)));
      go({ ...here(), section: now.length ? now : ["none"] }, { replace: true });
    })));
    this.parts.hidden = sections.length < 2;
    this.others.hidden = this.runs.length < 2;
    refill(this.others, this.runs.map((one, at) => chip(one.name, this.chosen.includes(one), `c${at % COLOURS}`, `with-${at}`, (on) => {
      const names = this.chosen.map(({ name }) => name).filter((name) => name !== this.run && name !== one.name);
      go({ ...here(), with: on ? [...names, one.name] : names }, { replace: true });
    }, one.name === this.run)));
  }

  // By which label rewards are split.
  labels() {
    const told = this.split.get(this.run)?.answer;
    this.label.hidden = !told?.keys.length;
    if (this.label.hidden) return;
    const change = (event) => go({ ...here(), by: event.target.value }, { replace: true });
    refill(this.label, ["by ", h("select", { id: "by", onchange: change }, told.keys.map((key) =>
      h("option", { value: key, selected: key === told.by }, plain(words(key)))))]);
  }

  show() {
    const place = here();
    this.chosen = this.runs.filter((one) => one.name === this.run || place.with?.includes(one.name));
    const answers = this.chosen.filter(({ name }) => this.measured.get(name)?.told !== undefined).map(({ name }) => this.told(name));
    this.choose(place, answers);
    const all = answers.length ? laid(answers) : [];
    const found = matching(all, this.find.value).filter(({ key }) => this.find.value.trim() || (place.section ? place.section.includes(key) : key !== CLOSED));
    this.say(answers, all, found);
    this.charts.draw(found);
  }

  say(answers, all, found) {
    const faults = answers.filter((one) => one.fault).map((one) => h("span", { class: "fault" }, `${one.name}: ${one.fault} `));
    const left = this.chosen.length - answers.length;
    const shown = found.reduce((sum, one) => sum + one.plots.length, 0);
    if (!answers.length) fill(this.line, "reading the run …");
    else if (!all.length) fill(this.line, faults, !faults.length && "No step has been made yet, and no suite evaluated. Curves come here with the first.");
    else if (!shown) fill(this.line, faults, "No curve is called so, or its section is not chosen.");
    else fill(this.line, faults, plural(shown, "plot"), left > 0 && `; reading ${plural(left, "run")} …`);
  }

  // The trajectories of a point.
  open(plot, line, at) {
    const chosen = from_point(plot.key, line, at);
    if (chosen) go({ run: line.run || this.run, ...chosen });
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => go({ ...here(), find: this.find.value.trim() }, { replace: true }), TYPING_MS);
  }
}

function chip(text, on, colour, id, change, disabled = false) {
  return h("label", { class: "chip", for: id },
    h("input", { type: "checkbox", id, checked: on, disabled, onchange: (event) => change(event.target.checked) }),
    colour && h("i", { class: `swatch ${colour}` }), text);
}
