// Drawings of a graph at several times, each node at one place in all.

import { h } from "../dom.js";
import { s } from "./svg.js";

// An edge is a triangle that grows wider towards its end.
export const graphs = (found) => h("div", { class: "charts" }, found.map(({ title, width, height, edges, nodes }) =>
  h("figure", { class: "chart" }, h("h3", {}, title), h("div", { class: "drawing" }, s("svg", { viewBox: `0 0 ${width} ${height}` },
    edges.map(({ points, says }) => s("polygon", { class: "area control", points }, s("title", {}, says))),
    nodes.map(({ x, y, radius, name, says, fresh }) => s("g", {},
      s("circle", { class: `dot ${fresh ? "c1" : "c0"}`, cx: x, cy: y, r: radius }, s("title", {}, says)),
      s("text", { x, y: y + radius + 11, "text-anchor": "middle" }, name))))))));
