// Where one is: everything that a link has to tell is in the address, and nothing else is.

export const FILTERS = [
  "text", "within", "suite", "stop", "tool", "label", "word", "step_from", "step_to", "reward_from", "reward_to", "failed",
];
const NAMES = ["run", "page", "at", ...FILTERS, "sort", "descending", "trajectory", "beside", "sequence", "find", "by"];
const LISTS = ["with", "section"]; // other runs; sections of curves

export function here() {
  const asked = new URLSearchParams(location.search);
  const said = NAMES.flatMap((name) => (asked.get(name) ? [[name, asked.get(name)]] : []));
  const lists = LISTS.flatMap((name) => (asked.has(name) ? [[name, asked.getAll(name).filter(Boolean)]] : []));
  return Object.fromEntries([...said, ...lists]);
}

export function address(place) {
  const asked = new URLSearchParams();
  for (const name of NAMES) if (place[name]) asked.set(name, place[name]);
  for (const name of LISTS) for (const one of place[name] ?? []) asked.append(name, one);
  return "/?" + asked;
}

export function go(place, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", address(place));
  else history.pushState(null, "", address(place));
  dispatchEvent(new Event("place"));
}

// A link follows inside of the page, unless another tab was asked for.
export function follow(event) {
  const link = event.target.closest("a[href^='/?']");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  dispatchEvent(new Event("place"));
}
