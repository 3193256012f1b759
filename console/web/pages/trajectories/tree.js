// The sequences of a trajectory as a tree: a row and a bar for each, tokens from left to right. A bar
// begins where the sequence leaves its parent, so that a shared prefix is drawn once.

import { h } from "../dom.js";
import { count, plural } from "../format.js";
import { s } from "../figures/svg.js";
import { COLOURS } from "../measures/plots.js";
import { address } from "../place.js";

const WIDE = 1000; // units of the drawing: tokens across,
const ROW = 100; //   and rows down
const BAR = [62, 90]; // edges of a bar in its row
const LEAST = 2;

// number: of the sequence that is shown. Of a single sequence that no other shares there is no tree.
export function tree(sequences, number, place) {
  if (sequences.length < 2 && !sequences[0]?.branch?.why) return null;
  const shown = sequences[number];
  return h("section", { class: "tree", "aria-label": "sequences" },
    h("h2", {}, `Sequence ${number + 1} of ${count(sequences.length)}`), h("p", { class: "quiet" }, origin(shown, place)),
    sequences.length > 1 && [key(sequences), h("div", { class: "forest" }, h("div", {}, drawing(sequences, number), list(sequences, number, place)))]);
}

// What stands behind a segment of the shown sequence: the sequences that leave it there.
export function leaves(sequences, number, place) {
  const own = sequences[number];
  if (!own?.branch || sequences.length < 2) return undefined;
  const ends = new Map();
  let at = own.branch.shared;
  for (const one of own.segments) ends.set(one, [at, (at += one.tokens)]);
  const children = sequences.flatMap(({ branch }, child) => (branch.parent === number ? [[child, branch.shared]] : []));
  return (segment) => {
    const [start, end] = ends.get(segment);
    const here = children.filter(([, shared]) => shared > start && shared <= end);
    return here.length > 0 && h("p", { class: "leaves" }, "left here by ", here.map(([child], nth) => [nth > 0 && ", ", link(place, child)]));
  };
}

const link = (place, number) => h("a", { href: address({ ...place, sequence: String(number + 1) }) }, `sequence ${number + 1}`);

// Why a sequence began, and what it shares.
function origin({ parent, fork_offset, branch: { parent: at, shared, why } }, place) {
  if (at !== null) return [`${why}. Its first ${plural(shared, "token")} are those of `, link(place, at), "."];
  if (!parent) return why ? `${why}.` : "The first one.";
  const trajectory = parent.slice(0, parent.lastIndexOf("."));
  return [`${why}: its first ${plural(fork_offset ?? 0, "token")} are a copy, from `,
    h("a", { href: address({ run: place.run, trajectory }) }, trajectory), "."];
}

const agents = (sequences) => [...new Set(sequences.map((one) => one.agent))];

function key(sequences) {
  const has = (some) => sequences.some(({ branch }) => branch.spans.some(([author, , , , trained]) => some(author === "model", trained)));
  const entry = (name, text) => h("span", {}, h("i", { class: name }), text);
  return h("p", { class: "legend" },
    agents(sequences).map((agent, at) => entry(`c${at % COLOURS} trained`, agent ? `agent ${agent}` : "the policy")),
    has((model, trained) => model && !trained) && entry("untrained", "the policy, not trained"), entry("read", "what it read"));
}

function list(sequences, number, place) {
  const order = sequences.map((one, at) => [one.branch.row, at]).sort(([one], [other]) => one - other).map(([, at]) => at);
  const colours = agents(sequences);
  return h("ol", {}, order.map((at) => {
    const { agent, branch } = sequences[at];
    const loss = branch.trained ? branch.trained < branch.written && `${count(branch.trained)} of them trained` : branch.untrained;
    return h("li", {}, h("a", { href: address({ ...place, sequence: String(at + 1) }), "aria-current": at === number ? "true" : null },
      h("span", { class: "label" }, h("i", { class: `swatch c${colours.indexOf(agent) % COLOURS}` }), h("b", {}, String(at + 1)), agent && ` ${agent}`,
        branch.turn !== null && h("span", { class: "quiet" }, ` from turn ${count(branch.turn + 1)},`),
        h("span", { class: "quiet" }, ` ${plural(branch.written, "token")} written`), loss && h("span", { class: "badge" }, loss),
        branch.why && h("span", { class: "quiet why" }, branch.why))));
  }));
}

function drawing(sequences, number) {
  const longest = Math.max(1, ...sequences.map(({ branch }) => branch.spans.at(-1)?.[3] ?? 0));
  const x = (at) => Math.min(at / longest, 1) * WIDE;
  const y = (branch, edge) => branch.row * ROW + edge;
  const colours = agents(sequences);
  const lines = sequences.map(({ branch }) => branch.parent !== null &&
    s("path", { class: "fork", d: `M${x(branch.shared)} ${y(sequences[branch.parent].branch, BAR[1])}V${y(branch, BAR[0])}` }));
  const bars = sequences.flatMap(({ agent, branch }, at) => branch.spans.map(([author, , start, end, trained]) => {
    const [from, wide] = [x(start), Math.max(x(end) - x(start), LEAST)];
    const kind = author !== "model" ? "read" : trained ? `trained c${colours.indexOf(agent) % COLOURS}` : "untrained";
    return s("path", { class: `${kind}${at === number ? " own" : ""}`, d: `M${from.toFixed(1)} ${y(branch, BAR[0])}h${wide.toFixed(1)}V${y(branch, BAR[1])}h-${wide.toFixed(1)}z` });
  }));
  return s("svg", { viewBox: `0 0 ${WIDE} ${ROW * sequences.length}`, preserveAspectRatio: "none", "aria-hidden": "true" }, lines, bars);
}
