// Elements of a drawing in one expression, as `h` makes those of a page. A text is ours or a number;
// what a stranger wrote stands beside the drawing.

import { plain } from "../visible.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const ATTRIBUTES = new Set([
  "class", "d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "points", "transform", "viewBox", "width",
  "height", "text-anchor", "aria-hidden", "preserveAspectRatio",
]);

export function s(tag, given = {}, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(given)) {
    if (!ATTRIBUTES.has(name)) throw new Error(`no attribute of ours: ${name}`);
    element.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child) element.append(child instanceof Node ? child : plain(String(child)));
  }
  return element;
}
