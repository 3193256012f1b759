// Parts of a page beside its plots: lists, facts, tables, shares.

import { h } from "../dom.js";
import { figure } from "../format.js";
import { s } from "./svg.js";

export function listed(title, lines, kind) {
  return lines.length > 0 && h("section", {}, h("h2", {}, title), h("ul", { class: kind }, lines.map((line) => h("li", {}, line))));
}

// [name, value] beside each other.
export const facts = (pairs) => h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "score" }, value))));

// A mean reward with its standard error.
export const score = (one) => [figure(one.mean), h("span", { class: "quiet" }, ` ± ${figure(one.stderr, 2)}`)];

// Parts of a whole beside each other.
export function bar(parts) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  let left = 0;
  return s("svg", { class: "bar", viewBox: "0 0 760 24", "aria-hidden": "true", preserveAspectRatio: "none" }, parts.map((part, at) => {
    const [x, width] = [left, (760 * part.value) / whole];
    left += width;
    return s("rect", { class: `area c${Math.min(at, 7)}`, x, y: 0, width: Math.max(width - 2, 0), height: 24 });
  }));
}

const AUTHORS = ["model", "tool", "prompt", "memory", "template", "system"];

// What policy and tools wrote. good: null where it is neither good nor bad.
export const trajectory = ({ question, segments, verdict, good }) => h("div", { class: "trace" },
  h("p", {}, question),
  h("div", { class: "tokens" }, segments.map(([author, text]) => h("span", { class: `by-${AUTHORS.includes(author) ? author : "other"}` }, text))),
  h("p", { class: good === null ? "quiet" : good ? "good" : "bad" }, verdict));

export const written = () => h("p", { class: "quiet" }, h("span", { class: "by-model" }, "Written by the policy"), " ", h("span", { class: "by-tool" }, "returned by the tool"));

const FEW = 20; // letters that stay in one line

const letters = (cell) => [cell].flat(2).map((part) => part?.textContent ?? part ?? "").join("").length;

export function table(heads, rows) {
  return h("div", { class: "scroll" }, h("table", { class: "listed" },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", { class: letters(cell) <= FEW ? "few" : "" }, cell)))))));
}
