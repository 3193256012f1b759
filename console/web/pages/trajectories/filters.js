// What the table shows: the search, the choices, and the ranges. A change goes into the address.

import { fill, h } from "../dom.js";
import { count, words } from "../format.js";
import { FILTERS, go, here } from "../place.js";
import { plain } from "../visible.js";

const TYPING_MS = 250;

export class Filters {
  constructor() {
    this.element = h("form", { class: "filters", role: "search", "aria-label": "trajectories", onsubmit: (e) => e.preventDefault() });
    this.timer = 0;
  }

  // choices: what the index has; place: what is chosen.
  show(choices, place) {
    const focused = this.element.contains(document.activeElement) ? document.activeElement : null;
    const search = h("input", {
      type: "search", id: "text", placeholder: "words, \"a phrase\", begin*", title: "press / to come here", "aria-label": "search the texts",
      autocomplete: "off", value: place.text ?? "", oninput: (event) => this.later("text", event.target.value),
    });
    const failed = h("input", { type: "checkbox", id: "failed", checked: Boolean(place.failed),
      onchange: (event) => this.set("failed", event.target.checked ? "true" : "") });
    fill(this.element,
      h("div", { class: "search" }, search,
        this.select("within", place, "in all texts", [
          ["question", "in questions"], ["wrote", "in what the policy wrote"], ["read", "in what it read"]])),
      this.select("suite", place, "all suites", counted(choices.suites)),
      this.select("stop", place, "all ends", counted(choices.stops)),
      this.select("tool", place, "all tools", counted(choices.tools)),
      this.labels(place, choices.labels),
      this.range("step", place, choices.steps ?? []),
      this.range("reward", place, []),
      h("label", { class: "tick", for: "failed" }, failed, "failed calls"),
      FILTERS.some((name) => place[name]) && h("button", { type: "button", class: "quiet", onclick: () => this.clear() }, "Clear"),
    );
    if (focused?.id) this.back(focused);
  }

  // A field keeps the focus while the user types.
  back(focused) {
    const again = this.element.querySelector(`#${focused.id}`);
    if (focused.type === "search" || focused.type === "number") again.value = focused.value;
    again.focus();
    if (focused.type === "search") again.setSelectionRange(focused.selectionStart, focused.selectionEnd);
  }

  select(name, place, all, options) {
    const known = options.some(([value]) => value === place[name]) || !place[name];
    const there = known ? options : [...options, [place[name], words(place[name])]];
    return h("select", { id: name, "aria-label": name, class: place[name] ? "chosen" : "", onchange: (event) => this.set(name, event.target.value) },
      h("option", { value: "" }, all),
      there.map(([value, text]) => h("option", { value, selected: value === place[name] }, text)));
  }

  // Words by their keys. A choice is a pair, which the option's place in the list names.
  labels(place, labels) {
    const pairs = labels.flatMap(({ key, words: own }) => own.map(({ name, rows }) => ({ key, name, rows })));
    const chosen = ({ key, name }) => key === place.label && name === place.word;
    const there = place.word && !pairs.some(chosen) ? [...pairs, { key: place.label, name: place.word }] : pairs;
    const change = ({ target: { value } }) => {
      const { key, name } = there[value] ?? {};
      go({ ...here(), label: key, word: name }, { replace: true });
    };
    const keys = [...new Set(there.map(({ key }) => key))];
    return there.length > 0 && h("select", { id: "label", "aria-label": "label", class: place.word ? "chosen" : "", onchange: change, title: place.word && plain(`${words(place.label)}: ${place.word}`) },
      h("option", { value: "" }, "all labels"),
      keys.map((key) => h("optgroup", { label: plain(words(key)) }, there.map((one, at) => one.key === key &&
        h("option", { value: String(at), selected: chosen(one) }, plain(one.name), one.rows && ` (${count(one.rows)})`)))));
  }

  range(name, place, [first, last]) {
    const bound = (end, hint) => h("input", {
      type: "number", step: "any", id: `${name}_${end}`, "aria-label": `${name} ${end}`, placeholder: hint ?? end,
      value: place[`${name}_${end}`] ?? "", oninput: (event) => this.later(`${name}_${end}`, event.target.value),
    });
    return h("span", { class: "range" }, name, bound("from", first), "–", bound("to", last));
  }

  later(name, value) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.set(name, value), TYPING_MS);
  }

  set(name, value) {
    go({ ...here(), [name]: value }, { replace: true });
  }

  clear() {
    const { run, sort, descending } = here();
    go({ run, sort, descending });
  }
}

const counted = (found) => found.map(({ name, rows }) => [name, `${words(name)} (${count(rows)})`]);
