// The curves of a run, and of others beside it: sections of plots, which follow the runs as they grow.

import { Refused, ask } from "../api.js";
import { fill, h } from "../dom.js";
import { plural } from "../format.js";
import { go, here } from "../place.js";
import { Chart } from "./chart.js";
import { COLOURS, laid, matching } from "./plots.js";

const CLOSED = "others"; // until it is asked for
const LEAST_MS = 1000;
const REST = 10; // a server that reads for a second is asked again after ten
const TYPING_MS = 200;

export class Curves {
  constructor(run, failed) {
    this.run = run;
    this.failed = failed;
    this.answers = new Map(); // by the run's name
    this.asking = new Map();
    this.charts = new Map(); // by the plot's key
    this.find = h("input", {
      type: "search", id: "find", placeholder: "a curve's name", "aria-label": "find a curve", title: "press / to come here",
      autocomplete: "off", oninput: () => this.typed(),
    });
    this.others = h("fieldset", { class: "chips", "aria-label": "runs" });
    this.parts = h("fieldset", { class: "chips", "aria-label": "sections" });
    this.line = h("p", { class: "line", role: "status" });
    this.body = h("div");
    this.element = h("section", { "aria-label": "curves" },
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, this.find, this.parts, this.others),
      this.line, this.body);
    this.seen = new IntersectionObserver((found) => found.forEach((one) => this.appear(one)), { rootMargin: "300px" });
  }

  enter(main, place, runs) {
    fill(main, this.element);
    this.runs = runs;
    this.moved(place);
  }

  leave() {
    clearTimeout(this.timer);
    for (const { timer } of this.asking.values()) clearTimeout(timer);
    this.asking.clear();
  }

  // The address has changed.
  moved(place) {
    this.find.value = document.activeElement === this.find ? this.find.value : (place.find ?? "");
    this.chosen = this.runs.filter((one) => one.name === this.run || place.with?.includes(one.name));
    this.choose(place);
    this.grown(this.runs);
    this.show();
  }

  // The runs have changed.
  grown(runs) {
    this.runs = runs;
    for (const { name } of this.chosen) {
      const { measured } = runs.find((one) => one.name === name) ?? {};
      if (measured && measured !== this.answers.get(name)?.state) this.ask(name);
    }
  }

  async ask(name) {
    const known = this.asking.get(name);
    if (known?.busy) return;
    const wait = (known?.rests ?? 0) - performance.now();
    clearTimeout(known?.timer);
    if (wait > 0) {
      this.asking.set(name, { ...known, timer: setTimeout(() => this.ask(name), wait) });
      return;
    }
    this.asking.set(name, { busy: true });
    const began = performance.now();
    let answer;
    try {
      answer = await ask("curves", { run: name });
    } catch (error) {
      if (error instanceof Refused) return void this.failed(error);
      answer = { sections: this.answers.get(name)?.sections ?? [], fault: error.message };
    }
    const took = performance.now() - began;
    this.asking.set(name, { rests: performance.now() + Math.max(LEAST_MS, REST * took) });
    this.answers.set(name, answer);
    if (!this.element.isConnected) return;
    this.show();
    if (!answer.fault) this.grown(this.runs); // it may have grown meanwhile
  }

  choose(place) {
    const shown = place.section;
    const keys = [...new Set([...this.answers.values()].flatMap((one) => one.sections.map(({ key, title }) => `${key}\n${title}`)))];
    const sections = keys.map((one) => one.split("\n"));
    const all = sections.map(([key]) => key);
    const open = (key) => (shown ? shown.includes(key) : key !== CLOSED);
    again(this.parts, sections.map(([key, title]) => chip(title, open(key), "", `section-${key}`, (on) => {
      const now = all.filter((one) => (one === key ? on : open(one)));
      go({ ...here(), section: now.length ? now : ["none"] }, { replace: true });
    })));
    this.parts.hidden = sections.length < 2;
    this.others.hidden = this.runs.length < 2;
    again(this.others, this.runs.map((one, at) => chip(one.name, this.chosen.includes(one), `c${at % COLOURS}`, `with-${at}`, (on) => {
      const names = this.chosen.map(({ name }) => name).filter((name) => name !== this.run && name !== one.name);
      go({ ...here(), with: on ? [...names, one.name] : names }, { replace: true });
    }, one.name === this.run)));
  }

  show() {
    const place = here();
    this.chosen = this.runs.filter((one) => one.name === this.run || place.with?.includes(one.name));
    this.choose(place);
    const there = this.chosen.filter(({ name }) => this.answers.has(name));
    const answers = there.map(({ name }) => ({ name, place: this.runs.findIndex((one) => one.name === name), ...this.answers.get(name) }));
    const all = answers.length ? laid(answers) : [];
    const found = matching(all, this.find.value).filter(({ key }) => this.find.value.trim() || (place.section ? place.section.includes(key) : key !== CLOSED));
    this.told(answers, all, found);
    this.draw(found);
  }

  told(answers, all, found) {
    const faults = answers.filter((one) => one.fault).map((one) => h("span", { class: "fault" }, `${one.name}: ${one.fault} `));
    const left = this.chosen.length - answers.length;
    const shown = found.reduce((sum, one) => sum + one.plots.length, 0);
    if (!answers.length) fill(this.line, "reading the run …");
    else if (!all.length) fill(this.line, faults, !faults.length && "No step has been made yet, and no suite evaluated. Curves come here with the first.");
    else if (!shown) fill(this.line, faults, "No curve is called so, or its section is not chosen.");
    else fill(this.line, faults, plural(shown, "plot"), left > 0 && `; reading ${plural(left, "run")} …`);
  }

  // A plot that stays keeps its element, so that whoever points at it, or stands on it, still does. An
  // element loses the focus when it is moved, so it is asked for first and given back last.
  draw(sections) {
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const kept = new Set();
    const blocks = sections.map(({ key, title, plots }) =>
      h("section", { "aria-label": title, class: "block" }, h("h2", {}, title), h("div", { class: `charts of-${key}` }, plots.map((plot) => {
        kept.add(plot.key);
        return this.chart(plot).element;
      }))));
    for (const [key, chart] of this.charts) {
      if (kept.has(key)) continue;
      this.seen.unobserve(chart.element);
      this.charts.delete(key);
    }
    fill(this.body, blocks);
    focused?.focus({ preventScroll: true });
  }

  chart(plot) {
    const known = this.charts.get(plot.key);
    const chart = known ?? new Chart((step) => this.point(step));
    if (known?.of !== plot) {
      chart.show(plot);
      if (known?.visible) chart.draw();
    }
    if (!known) {
      this.charts.set(plot.key, chart);
      chart.element.chart = chart;
      this.seen.observe(chart.element);
    }
    return chart;
  }

  appear({ target, isIntersecting }) {
    target.chart.visible = isIntersecting;
    if (isIntersecting) {
      target.chart.draw();
      target.chart.point(this.step ?? null);
    }
  }

  // In all plots that are seen.
  point(step) {
    this.step = step;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      for (const chart of this.charts.values()) if (chart.visible) chart.point(step);
    });
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => go({ ...here(), find: this.find.value.trim() }, { replace: true }), TYPING_MS);
  }

  key(event) {
    if (event.key !== "/") return;
    event.preventDefault();
    this.find.focus();
  }
}

function chip(text, on, colour, id, change, disabled = false) {
  return h("label", { class: "chip", for: id },
    h("input", { type: "checkbox", id, checked: on, disabled, onchange: (event) => change(event.target.checked) }),
    colour && h("i", { class: `swatch ${colour}` }), text);
}

// Whoever goes through the choices with the keyboard stays where they are.
function again(element, content) {
  const id = element.contains(document.activeElement) ? document.activeElement.id : "";
  fill(element, content);
  if (id) element.querySelector(`#${CSS.escape(id)}`)?.focus();
}
