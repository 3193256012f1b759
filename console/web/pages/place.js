// Where one is: everything that a link has to tell is in the address, and nothing else is.

export const FILTERS = [
  "text", "within", "suite", "stop", "tool", "step_from", "step_to", "reward_from", "reward_to", "failed",
];
const NAMES = ["run", ...FILTERS, "sort", "descending", "trajectory", "beside"];

export function here() {
  const asked = new URLSearchParams(location.search);
  return Object.fromEntries(NAMES.flatMap((name) => (asked.get(name) ? [[name, asked.get(name)]] : [])));
}

export function address(place) {
  const asked = new URLSearchParams();
  for (const name of NAMES) if (place[name]) asked.set(name, place[name]);
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
