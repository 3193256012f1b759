// Elements in one expression. Strings become text, never markup; attributes are named here, so that
// none of a stranger's words becomes one that acts.

import { put } from "./visible.js";

const ATTRIBUTES = new Set([
  "aria-current", "aria-label", "aria-sort", "autocomplete", "for", "href", "id", "label", "max", "min", "name",
  "placeholder", "role", "scope", "step", "tabindex", "title", "type", "value", "colspan", "dir",
]);

// h("a", { class: "x", href: address, onclick: f }, "text", element, [more])
export function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (["checked", "disabled", "open", "hidden", "selected"].includes(name)) element[name] = true;
    else if (ATTRIBUTES.has(name)) element.setAttribute(name, value);
    else throw new Error(`no attribute of ours: ${name}`);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else if (child instanceof Node) element.append(child);
    else put(element, String(child));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

// Fills an element anew. The element with the focus, by its id, keeps it.
export function refill(element, ...children) {
  const id = element.contains(document.activeElement) ? document.activeElement.id : "";
  fill(element, ...children);
  if (id) document.getElementById(id)?.focus({ preventScroll: true });
  return element;
}

// A text for screen readers and in the corner of the page.
export function say(text) {
  const line = document.getElementById("said");
  line.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (line.textContent = ""), 4000);
}

export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { class: "off" }); // where the page is not on a secure address
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
