// The page as a whole: the head with the runs, and below it one of a run's pages, or the list of runs.

import { Refused, keepToken, listen, takeToken } from "./api.js";
import { copy, fill, h, say } from "./dom.js";
import { count, plural } from "./format.js";
import { address, follow, go, here } from "./place.js";
import { About } from "./measures/about.js";
import { Curves } from "./measures/curves.js";
import { Flips } from "./measures/flips.js";
import { Runs } from "./measures/list.js";
import { Timeline } from "./timeline/timeline.js";
import { Table } from "./trajectories/table.js";
import { Trajectory } from "./trajectories/trajectory.js";

const top = document.getElementById("top");
const main = document.getElementById("main");
let runs = null;
let table = null;
let page = null; // one of PAGES, or the list of runs, while it is shown
let shown = "";

const PAGES = new Map([["timeline", Timeline], ["curves", Curves], ["evaluations", Flips], ["run", About]]);
const NAMES = [["", "Trajectories"], ["timeline", "Timeline"], ["curves", "Curves"], ["evaluations", "Evaluations"], ["run", "Run"]];

function show() {
  const place = here();
  if (runs === null) return fill(main, h("p", { class: "quiet" }, "asking the server …"));
  if (!runs.length) return fill(main, h("p", { class: "quiet" }, "there is no run to show"));
  if (!place.run && runs.length === 1 && page === null) return go({ run: runs[0].name }, { replace: true });
  if (!place.run) return showPage(Runs, place);
  const run = runs.find((one) => one.name === place.run);
  head(run);
  if (!run) {
    leavePage();
    return fill(main, h("p", { class: "fault" }, `no run ${place.run} is shown here`));
  }
  document.title = [place.trajectory, run.name, "Toolwright"].filter(Boolean).join(" · ");
  const Page = place.trajectory ? Trajectory : PAGES.get(place.page);
  if (Page) return showPage(Page, place);
  leavePage();
  const now = `table of ${run.name}`;
  if (now === shown) table.moved(place);
  else {
    if (table?.run !== run.name) table = new Table(run.name, failed);
    table.enter(main, place, run);
  }
  shown = now;
  return undefined;
}

// Every page has `enter`, `moved` when the address has changed, `grown` when runs have, and `leave`.
function showPage(Page, place) {
  if (page instanceof Page && page.run === place.run) return page.moved(place);
  leavePage();
  table?.leave();
  shown = "page";
  if (!place.run) {
    head(null);
    document.title = "Toolwright";
  }
  page = new Page(place.run, failed);
  page.enter(main, place, runs);
  scrollTo(0, 0);
  return undefined;
}

function leavePage() {
  page?.leave();
  page = null;
}

function head(run) {
  const several = runs.length > 1;
  const choose = h("select", {
    "aria-label": "run", onchange: (event) => go({ run: event.target.value, page: here().page }),
  }, runs.map((one) => h("option", { value: one.name, selected: one === run }, one.name)));
  fill(top,
    h("a", { class: "home", href: several ? "/?" : address({ run: runs[0].name }) }, "Toolwright"),
    several && run ? choose : h("span", { class: "run" }, run ? run.name : ""),
    run && h("nav", { "aria-label": "pages of the run" }, NAMES.map(([kind, name]) =>
      h("a", { href: address({ run: run.name, page: kind }), "aria-current": (here().page ?? "") === kind ? "page" : null }, name))),
    run && h("span", { class: run.whole ? "state" : "state busy" },
      run.whole ? plural(run.rows, "trajectory", "trajectories") : `reading … ${count(run.rows)} so far`),
    run?.remarks.length > 0 && h("details", { class: "remarks" },
      h("summary", {}, plural(run.remarks.length, "remark")),
      h("ul", {}, run.remarks.map((one) => h("li", {}, one)))),
    run && h("button", { class: "quiet", type: "button", onclick: link }, "Copy link"),
  );
}

async function link() {
  await copy(location.href);
  say("The link is copied.");
}

function heard(state) {
  const first = runs === null;
  runs = state.runs;
  if (first) return show();
  const place = here();
  const run = runs.find((one) => one.name === place.run);
  const open = top.querySelector("details")?.open;
  if (!top.contains(document.activeElement)) head(run);
  if (open && top.querySelector("details")) top.querySelector("details").open = true;
  page?.grown(runs);
  if (!page && run && table?.run === run.name) table.grown(run);
  return undefined;
}

function failed(error) {
  if (error.name === "AbortError") return;
  if (error instanceof Refused) askToken();
  else fill(main, h("p", { class: "fault", role: "alert" }, error.message));
}

function lost(error) {
  if (error instanceof Refused) askToken();
  else if (runs !== null) say("The server does not answer; asking again.");
}

function askToken() {
  const field = h("input", { type: "password", id: "token", autocomplete: "off" });
  const enter = (event) => {
    event.preventDefault();
    keepToken(field.value);
    location.reload();
  };
  fill(top, h("span", { class: "home" }, "Toolwright"));
  fill(main, h("form", { class: "token", onsubmit: enter },
    h("label", { for: "token" }, "The token of TOOLWRIGHT_TOKEN"), field, h("button", {}, "Enter")));
  field.focus();
}

takeToken();
addEventListener("place", show);
addEventListener("popstate", show);
addEventListener("click", follow);
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape" && typing) return typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return undefined;
  const { trajectory, beside, sequence, ...place } = here();
  if (event.key === "Escape" && trajectory) return go(place);
  const search = event.key === "/" && main.querySelector("input[type=search]");
  if (search) {
    event.preventDefault();
    return search.focus();
  }
  if (page) page.key?.(event);
  else if (!trajectory && table) table.key(event);
  return undefined;
});
show();
listen(heard, lost);
