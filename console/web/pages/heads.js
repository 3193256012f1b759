// A head of a table that sorts by a click. The address holds the order.

import { h } from "./dom.js";
import { go, here } from "./place.js";

// by: name of the order; "" for a column that does not sort.
export function head({ by, title, kind = "", hint }) {
  const { sort, descending = "true" } = here();
  const sorted = by && by === sort ? (descending === "true" ? "descending" : "ascending") : null;
  const turn = () => go({ ...here(), sort: by, descending: sorted === "descending" ? "false" : "true" }, { replace: true });
  return h("th", { scope: "col", class: kind, "aria-sort": sorted },
    by ? h("button", { type: "button", id: `sort-${by}`, title: hint, onclick: turn }, title, sorted && h("span", { class: "arrow" }, sorted === "descending" ? "↓" : "↑")) : title);
}
