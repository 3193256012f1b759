// The page as a whole: the head with the runs, and below it the table or one trajectory.

import { Refused, keepToken, listen, takeToken } from "./api.js";
import { copy, fill, h, say } from "./dom.js";
import { count, plural } from "./format.js";
import { address, follow, go, here } from "./place.js";
import { Table } from "./trajectories/table.js";
import { showTrajectory } from "./trajectories/trajectory.js";

const top = document.getElementById("top");
const main = document.getElementById("main");
let runs = null;
let table = null;
let shown = "";

function show() {
  const place = here();
  if (runs === null) return fill(main, h("p", { class: "quiet" }, "asking the server …"));
  if (!runs.length) return fill(main, h("p", { class: "quiet" }, "there is no run to show"));
  if (!place.run) return runs.length === 1 ? go({ run: runs[0].name }, { replace: true }) : showRuns();
  const run = runs.find((one) => one.name === place.run);
  head(run);
  if (!run) return fill(main, h("p", { class: "fault" }, `no run ${place.run} is shown here`));
  document.title = [place.trajectory, run.name, "Toolwright"].filter(Boolean).join(" · ");
  const now = place.trajectory ? address(place) : `table of ${run.name}`;
  if (now === shown && place.trajectory) return undefined;
  if (place.trajectory) {
    table?.leave();
    showTrajectory(main, place, failed);
  } else if (now === shown) table.moved(place);
  else {
    if (table?.run !== run.name) table = new Table(run.name, failed);
    table.enter(main, place, run);
  }
  shown = now;
  return undefined;
}

function showRuns() {
  head(null);
  shown = "runs";
  document.title = "Toolwright";
  const rows = runs.map((run) =>
    h("li", {},
      h("a", { href: address({ run: run.name }) }, run.name),
      h("span", { class: "quiet" }, plural(run.rows, "trajectory", "trajectories")),
      h("span", { class: "quiet path" }, run.folder)),
  );
  fill(main, h("h1", {}, "Runs"), h("ul", { class: "runs" }, rows));
}

function head(run) {
  const several = runs.length > 1;
  const choose = h("select", {
    "aria-label": "run", onchange: (event) => go({ run: event.target.value }),
  }, runs.map((one) => h("option", { value: one.name, selected: one === run }, one.name)));
  fill(top,
    h("a", { class: "home", href: several ? "/?" : address({ run: runs[0].name }) }, "Toolwright"),
    several && run ? choose : h("span", { class: "run" }, run ? run.name : ""),
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
  if (first || shown === "runs") return show();
  const place = here();
  const run = runs.find((one) => one.name === place.run);
  const open = top.querySelector("details")?.open;
  if (!top.contains(document.activeElement)) head(run);
  if (open && top.querySelector("details")) top.querySelector("details").open = true;
  if (run && table?.run === run.name) table.grown(run);
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
  const { trajectory, beside, ...place } = here();
  if (event.key === "Escape" && trajectory) return go(place);
  if (!trajectory && table) table.key(event);
  return undefined;
});
show();
listen(heard, lost);
