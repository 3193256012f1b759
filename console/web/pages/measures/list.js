// The runs that are shown: how far each is, what came of it, and what raises doubts.

import { Refused, ask } from "../api.js";
import { fill, h } from "../dom.js";
import { count, figure, moment, plural } from "../format.js";
import { address } from "../place.js";

const PACE_MS = 5000;

export class Runs {
  constructor(failed) {
    this.failed = failed;
    this.told = new Map(); // by the run's name
    this.body = h("tbody");
    this.element = h("section", { "aria-label": "runs" });
  }

  enter(main, runs) {
    const [first, ...others] = runs.map((one) => one.name);
    const heads = ["run", "steps", "reward", "what came of it", "last sign", "trajectories"];
    fill(this.element, h("h1", {}, "Runs"),
      runs.length > 1 && h("p", {}, h("a", { href: address({ run: first, page: "curves", with: others }) }, "The curves of all over each other")),
      h("table", { class: "listed" }, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), this.body));
    fill(main, this.element);
    this.grown(runs);
  }

  grown(runs) {
    this.runs = runs;
    fill(this.body, runs.map((run) => this.row(run)));
    this.ask();
  }

  leave() {}

  // One after the other, so that many runs do not wait for each other's reading.
  async ask() {
    if (this.busy) return;
    this.busy = true;
    try {
      for (;;) {
        const old = this.runs.find((run) => run.measured && this.told.get(run.name)?.state !== run.measured);
        if (!old || !this.element.isConnected) return;
        const told = await ask("about", { run: old.name }).catch((error) => {
          if (error instanceof Refused) throw error;
          return { fault: error.message };
        });
        const pause = this.told.has(old.name) ? PACE_MS : 0;
        this.told.set(old.name, { ...told, state: told.state ?? old.measured });
        fill(this.body, this.runs.map((run) => this.row(run)));
        if (pause) await new Promise((done) => setTimeout(done, pause));
      }
    } catch (error) {
      this.failed(error);
    } finally {
      this.busy = false;
    }
  }

  row(run) {
    const told = this.told.get(run.name);
    const cell = (name, ...content) => h("td", { class: name }, content);
    const link = (page, text) => h("a", { href: address({ run: run.name, page }) }, text);
    return h("tr", {},
      h("th", { scope: "row" }, link("run", run.name), h("span", { class: "quiet path" }, run.folder)),
      cell("number made", told?.steps !== undefined && link("curves", told.planned ? `${count(told.steps)} of ${count(told.planned)}` : count(told.steps))),
      cell("number rewarded", figure(told?.reward)),
      cell("", told?.fault ? h("span", { class: "fault" }, told.fault) : told ? came(told) : "reading …"),
      cell("quiet", moment(told?.last)),
      cell("number recorded", h("a", { href: address({ run: run.name }) }, count(run.rows))));
  }
}

function came(told) {
  return [told.headline, told.control && h("span", { class: "badge" }, "control: learning rate 0"),
    told.course.ended?.status > 0 && h("span", { class: "badge bad" }, `ended with status ${told.course.ended.status}`),
    told.doubts.length > 0 && h("span", { class: "badge bad" }, plural(told.doubts.length, "doubt"))];
}
