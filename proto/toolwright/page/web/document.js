// A page of blocks, in one file: it draws the data that stands in the file.

import { fill, h } from "./dom.js";
import { Charts } from "./figures/charts.js";
import { graphs } from "./figures/graphs.js";
import { bar, facts, table, trajectory } from "./figures/parts.js";
import { timeline } from "./figures/timeline.js";

const all = [];
const KINDS = {
  heading: ({ text, level }) => h(level === 3 ? "h3" : "h2", {}, text),
  note: ({ text }) => h("p", { class: "quiet" }, text),
  list: ({ lines, fault }) => h("ul", { class: fault ? "fault" : "" }, lines.map((line) => h("li", {}, line))),
  facts: (block) => facts(block.facts),
  table: ({ heads, rows }) => table(heads, rows.map((row) => row.map(cell))),
  charts: (block) => {
    const charts = new Charts();
    charts.draw([{ key: "", ...block }]);
    all.push(charts);
    return charts.element;
  },
  bar: ({ title, parts }) => h("section", {}, title && h("h3", {}, title), bar(parts),
    h("ul", { class: "legend" }, parts.map(({ name, text }, at) => h("li", {}, h("i", { class: `swatch c${Math.min(at, 7)}` }), ` ${name} ${text}`)))),
  folded: ({ title, text }) => h("details", {}, h("summary", {}, title), h("pre", { class: "text" }, text)),
  trajectory,
  graphs: (block) => graphs(block.graphs),
  timeline,
};

function cell(one) {
  if (typeof one !== "object" || one === null) return one; // a text has a method of the name "bold"
  return one.code === undefined ? h("b", {}, one.bold) : h("code", {}, one.code);
}

const { title, blocks } = JSON.parse(document.getElementById("data").textContent);
fill(document.getElementById("main"), h("article", { class: "about" }, h("h1", {}, title), blocks.map((block) => KINDS[block.kind](block))));
addEventListener("beforeprint", () => all.forEach((charts) => charts.drawAll()));
