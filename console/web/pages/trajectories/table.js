// The table of trajectories: a page at a time as one scrolls, sorted by a click on a head.

import { Refused, ask } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { head } from "../heads.js";
import { Filters } from "./filters.js";
import { count, judged, plural, reward, seconds, words } from "../format.js";
import { FILTERS, address, go, here } from "../place.js";

const COLUMNS = [
  ["step", "step", "step", "number", "of the newest weights that wrote in it"],
  ["", "suite", "suite", "", ""],
  ["", "asked", "question and last words", "", ""],
  ["reward", "reward", "reward", "number", "its sum"],
  ["", "stop", "end", "", ""],
  ["", "tools", "tools", "", ""],
  ["turns", "turns", "turns", "number", "turns of the policy"],
  ["calls", "calls", "calls", "number", "calls of tools, failed ones marked"],
  ["tokens", "tokens", "tokens", "number", "that the policy wrote"],
  ["seconds", "seconds", "time", "number", "of the wall clock"],
];

export class Table {
  constructor(run, failed) {
    this.run = run;
    this.failed = failed;
    this.filters = new Filters();
    this.head = h("tr");
    this.body = h("tbody");
    this.line = h("p", { class: "line", role: "status" });
    this.fresh = h("button", { type: "button", class: "fresh", hidden: true, onclick: () => this.again() });
    this.more = h("button", { type: "button", class: "more", hidden: true, onclick: () => this.load() }, "More");
    this.element = h("section", { "aria-label": "trajectories" },
      this.filters.element, h("div", { class: "above" }, this.line, this.fresh),
      h("table", { class: "rows" }, h("thead", {}, this.head), this.body), this.more);
    this.watch = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && this.load(), { rootMargin: "600px" });
    this.watch.observe(this.more);
    this.choices = { suites: [], stops: [], tools: [], labels: [], steps: null };
    this.asked = "";
    this.scroll = 0;
    this.generation = null;
  }

  enter(main, place, run) {
    fill(main, this.element);
    if (this.asked === question(place)) scrollTo(0, this.scroll);
    this.state = run;
    this.moved(place);
  }

  leave() {
    this.scroll = scrollY;
  }

  // The address has changed.
  moved(place) {
    if (this.asked === question(place)) return;
    this.again();
  }

  async again() {
    const place = here();
    this.asked = question(place);
    this.next = "";
    refill(this.head, COLUMNS.map(([by, name, title, kind, hint]) => head({ by, title, kind: `${name} ${kind}`, hint })));
    this.fresh.hidden = true;
    this.generation = this.state.generation;
    this.filters.show(this.choices, place);
    await Promise.all([this.load(true), this.choose()]);
  }

  async choose() {
    try {
      this.choices = await ask("choices", { run: this.run });
      this.filters.show(this.choices, here());
    } catch (error) {
      this.failed(error);
    }
  }

  // The run has changed.
  grown(run) {
    this.state = run;
    if (!this.element.isConnected || this.generation === null) return;
    if (run.generation === this.generation) {
      if (!this.body.children.length && !this.busy) this.told(0); // all of it is read, or is no longer
    } else if (this.body.children.length < 50 && !this.next) this.again();
    else {
      const fresh = run.rows - this.known;
      fill(this.fresh, fresh > 0 ? `${plural(fresh, "new trajectory", "new trajectories")}: show` : "the run has changed: show");
      this.fresh.hidden = false;
    }
  }

  async load(first = false) {
    if (!first && (this.busy || !this.next)) return;
    this.pending?.abort();
    this.pending = new AbortController();
    this.busy = true;
    try {
      const place = here();
      const asked = { run: this.run, sort: place.sort, descending: place.descending, after: this.next };
      for (const name of FILTERS) asked[name] = place[name];
      const found = await ask("rows", asked, this.pending.signal);
      if (first) {
        this.body.replaceChildren();
        this.known = this.state.rows;
        this.told(found.total);
      }
      this.next = found.next;
      this.more.hidden = !found.next;
      this.body.append(...found.rows.map((row) => this.row(row)));
      this.busy = false;
      this.watch.unobserve(this.more); // a user who scrolled on meanwhile is at the end already,
      this.watch.observe(this.more); //   and would wait for a change that does not come
    } catch (error) {
      if (error.name === "AbortError") return;
      this.busy = false;
      if (error instanceof Refused) this.failed(error);
      else fill(this.line, h("span", { class: "fault" }, error.message));
    }
  }

  told(total) {
    const chosen = FILTERS.some((name) => here()[name]);
    const newest = h("button", { type: "button", class: "plain", onclick: () => go({ ...here(), sort: "", descending: "" }) }, "newest first");
    if (total) fill(this.line, plural(total, "trajectory", "trajectories"), ", ", here().sort ? ["sorted by ", here().sort, "; ", newest] : "newest first");
    else if (chosen) fill(this.line, "Nothing is like that. Clear a filter, or look for another word.");
    else if (!this.state.whole) fill(this.line, "Reading the run …");
    else fill(this.line, "This run has no trajectories yet. They come here as soon as a group is complete.");
  }

  row(row) {
    const link = address({ ...here(), trajectory: row.name });
    const cell = (name, ...content) => h("td", { class: name }, content);
    return h("tr", { onclick: (event) => open(event, link) },
      cell("step number", row.step ?? ""),
      cell("suite", row.suite),
      h("td", { class: "asked", dir: "ltr" },
        h("a", { href: link }, row.question || row.task || row.name),
        row.answer && h("span", { class: "answer" }, row.answer)),
      cell(`reward number ${judged(row.reward)}`, reward(row.reward)),
      cell("stop", words(row.stop || row.status), row.masked && h("span", { class: "badge" }, "masked")),
      cell("tools", row.tools.join(", ")),
      cell(`turns number${row.turns === 1 ? " one" : ""}`, row.turns || ""),
      cell(`calls number${row.calls === 1 ? " one" : ""}`, h("span", { class: "count" }, count(row.calls)), row.failed > 0 && h("span", { class: "badge bad" }, `${count(row.failed)} failed`)),
      cell("tokens number", row.tokens ? count(row.tokens) : ""),
      cell("seconds number", row.seconds ? seconds(row.seconds) : ""));
  }

  // j, k and the arrows go from row to row.
  key(event) {
    const way = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (!way) return undefined;
    const links = [...this.body.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? 0 : Math.min(Math.max(at + way, 0), links.length - 1)];
    event.preventDefault();
    next?.focus();
    next?.closest("tr").scrollIntoView({ block: "nearest" });
    return undefined;
  }
}

// What the server is asked, without what it is not.
function question(place) {
  const { trajectory, beside, sequence, ...asked } = place;
  return address(asked);
}

function open(event, link) {
  if (event.target.closest("a") || String(getSelection())) return;
  history.pushState(null, "", link);
  dispatchEvent(new Event("place"));
}
