// One trajectory: what it was asked, every turn with who wrote which token, each call, what was paid.

import { ask } from "../api.js";
import { copy, fill, h, say } from "../dom.js";
import { count, judged, plural, reward, seconds, shade, signed, words } from "../format.js";
import { showGroup } from "./group.js";
import { image } from "./image.js";
import { leaves, tree } from "./tree.js";
import { address, here } from "../place.js";
import { plain, put } from "../visible.js";

const AUTHORS = { model: "policy", tool: "tool", memory: "memory", prompt: "prompt", template: "template", system: "system" };
const TIMES = ["open", "generate", "tool", "reward"];

export class Trajectory {
  constructor(run, failed) {
    this.run = run;
    this.failed = failed;
    this.articles = [];
  }

  enter(main, place) {
    this.main = main;
    this.moved(place);
  }

  leave() {
    this.shown = "";
  }

  grown() {}

  // The address has changed: another sequence of what is shown, or another trajectory.
  moved(place) {
    const { sequence, ...what } = place;
    if (this.shown === address(what)) return this.articles.forEach((one) => one.choose(place));
    [this.shown, this.articles] = [address(what), []];
    return this.load(place);
  }

  async load(place) {
    const { trajectory, beside, sequence, ...table } = place;
    const columns = h("div", { class: beside ? "columns two" : "columns" });
    const group = h("section", { class: "group", "aria-label": "its group" });
    fill(this.main, h("p", { class: "back" }, h("a", { href: address(table) }, "← all trajectories")),
      h("div", { class: beside ? "" : "beside" }, columns, group));
    scrollTo(0, 0);
    try {
      const names = [trajectory, beside].filter(Boolean);
      const told = await Promise.all(names.map((name) => ask("trajectory", { run: this.run, name })));
      if (!columns.isConnected) return;
      this.articles = told.map((one) => new Article(one, here()));
      columns.append(...this.articles.map((one) => one.element));
      await showGroup(group, here(), told[0]);
    } catch (error) {
      this.failed(error);
    }
  }
}

class Article {
  constructor(told, place) {
    this.told = told;
    this.record = told.record ?? { sequences: [], calls: [], events: [] };
    this.body = h("div");
    const { beside, sequence, ...alone } = place;
    this.element = h("article", {},
      h("h1", {}, told.question || told.task || told.name),
      h("p", { class: "named" }, h("code", {}, told.name), h("span", {}, told.suite),
        told.step === null ? null : h("span", {}, `step ${told.step}`), timed(place.run, told), told.fate && h("span", {}, told.fate),
        h("button", { type: "button", class: "quiet", onclick: () => copyRecord(place.run, told.name) }, "Copy as JSON"),
        beside && h("a", { href: address({ ...alone, trajectory: told.name }) }, "alone")),
      told.gone && h("p", { class: "fault" }, `The tokens are not at hand: ${told.gone}`),
      facts(told, this.record), this.body, events(this.record), figures(this.record), ids(told, this.record));
    this.choose(place);
  }

  // Shows one sequence. The list of sequences stays where it was scrolled to, and so does the focus.
  choose(place) {
    const { record, told } = this;
    const focused = this.body.contains(document.activeElement);
    const wanted = Number(place.sequence ?? 1) - 1;
    const number = record.sequences[wanted] ? wanted : 0;
    const shown = { run: place.run, credit: told.credit, whole: () => this.whole(), place };
    const scrolled = this.body.querySelector(".forest")?.scrollTop;
    fill(this.body, text_of(record, number, shown));
    if (scrolled) this.body.querySelector(".forest").scrollTop = scrolled;
    if (focused) this.body.querySelector(".tree [aria-current]")?.focus({ preventScroll: true });
  }

  async whole() {
    const place = here();
    this.record = (await ask("trajectory", { run: place.run, name: this.told.name, whole: "true" })).record;
    this.choose(place);
  }
}

async function copyRecord(run, name) {
  const told = await ask("trajectory", { run, name, whole: "true" });
  await copy(JSON.stringify(told, null, 2));
  say("The whole record is copied as JSON.");
}

function facts(told, record) {
  const parts = (record.parts ?? []).map((part) =>
    h("li", {}, h("b", {}, reward(part.value)), ` ${part.name}`, part.turn === null ? "" : ` (turn ${part.turn + 1})`));
  const answers = (record.task?.answers ?? []).map((answer) => answer.text).filter(Boolean);
  const marks = [told.masked && "masked: carries no loss", record.outside_baseline && "outside of the baseline"].filter(Boolean);
  const fact = (name, ...content) => h("div", {}, h("dt", {}, name), h("dd", {}, content));
  return h("dl", { class: "facts" },
    fact("reward", h("span", { class: `score ${judged(told.reward)}` }, reward(told.reward)), parts.length > 0 && h("ul", { class: "parts" }, parts)),
    told.credit && fact("advantage", credit(told.credit)),
    fact("end", words(told.stop || "unknown"), told.status && h("span", { class: "quiet" }, words(told.status)), marks.map((mark) => h("span", { class: "badge" }, mark))),
    record.task?.data_source && fact("data source", record.task.data_source),
    answers.length > 0 && fact("right answer", answers.join(" or ")),
    fact("work", [told.turns && plural(told.turns, "turn"), plural(told.calls, "call"), told.tokens && plural(told.tokens, "token")].filter(Boolean).join(", ")),
    record.seconds && fact("time", times(record.seconds)));
}

const way = (value) => (value > 0 ? "good" : value < 0 ? "bad" : "");

// What all tokens of the policy have of the trajectory; what its turns add stands at these.
function credit({ advantage, formula, why }) {
  return [advantage !== null && h("span", { class: `score ${way(advantage)}` }, signed(advantage)),
    h("p", { class: "quiet why" }, [formula && `${formula}.`, why].filter(Boolean).join(" "))];
}

function times(spent) {
  const named = TIMES.filter((name) => spent[name] > 0);
  const cells = named.map((name) => h("li", {}, h("i", { class: `key t-${name}` }), `${name} ${seconds(spent[name])}`));
  return [seconds(spent.wall), h("ul", { class: "times" }, cells)];
}

// number: of the sequence that is shown. shown: the run, what shows everything of a text that was cut,
// the credit of the turns, and the address.
function text_of(record, number, shown) {
  const { sequences, calls } = record;
  if (!sequences.length && !calls.length) {
    return h("p", { class: "quiet" }, "No text of it was kept: an evaluation keeps the text of a few questions.");
  }
  // A call is shown once: in the first sequence that has its action.
  const of = (call) => Math.max(0, sequences.findIndex((one) => wrote(one, call.turn)));
  const sequence = sequences[number];
  return [tree(sequences, number, shown.place), legend(record, sequence),
    turns(sequence?.segments ?? [], calls.filter((call) => of(call) === number), { ...shown, leaves: leaves(sequences, number, shown.place) })];
}

function wrote(sequence, turn) {
  return sequence.segments.some((one) => one.author === "model" && one.turn === turn);
}

function legend(record, sequence) {
  const authors = new Set(sequence?.segments.map((segment) => segment.author));
  const shades = [0, 2, 4, 6, 8, 9].map((level) => h("i", { class: `s${level}` }, " "));
  const weighed = sequence?.segments.some((segment) => segment.logprobs);
  return h("p", { class: "legend" },
    [...authors].map((author) => h("span", { class: `mark by-${known(author)}` }, AUTHORS[author] ?? author)),
    weighed && h("span", { class: "scale" }, "probability of a token: 1", shades, "0"),
    record.decoded === false && h("span", { class: "fault" }, "The policy's tokenizer is not at hand, so tokens are numbers."));
}

// Segments of a turn with its calls: those stand behind what the policy wrote there, and what the turn
// earned before it.
function turns(segments, calls, shown) {
  const last = Math.max(0, ...segments.map((one) => one.turn), ...calls.map((one) => one.turn));
  const by = Array.from({ length: Math.min(last + 1, 10_000) }, () => ({ segments: [], calls: [] }));
  for (const one of segments) by[one.turn]?.segments.push(one);
  for (const one of calls) by[one.turn]?.calls.push(one);
  return h("ol", { class: "turns" }, by.map(({ segments: here, calls: made }, turn) => {
    const wrote = here.findLastIndex((one) => one.author === "model");
    const first = here.findIndex((one) => one.author === "model");
    return (here.length > 0 || made.length > 0) && h("li", { "aria-label": `turn ${turn + 1}` },
      here.slice(0, Math.max(first, 0)).map((one) => segment(one, shown)),
      earned(shown.credit?.turns.find((one) => one.turn === turn)),
      here.slice(Math.max(first, 0), wrote + 1).map((one) => segment(one, shown)),
      made.map((one) => call(one, shown)),
      here.slice(wrote + 1).map((one) => segment(one, shown)));
  }));
}

// What a turn earned by itself, what it is compared by, and the advantage of its tokens.
function earned(turn) {
  if (!turn) return null;
  const { reward: own, advantage, anchors } = turn;
  return h("p", { class: "earned" }, `turn ${turn.turn + 1}`,
    h("span", {}, "reward ", h("b", { class: way(own) }, signed(own))),
    advantage !== null && h("span", {}, "advantage of its tokens ", h("b", { class: way(advantage) }, signed(advantage))),
    anchors.length > 0 && h("span", {}, `compared by ${anchors.join(", ")}`));
}

function segment(one, shown) {
  const notes = [plural(one.tokens ?? 0, "token"), one.version && `weights ${one.version}`, one.temperature !== undefined && one.temperature !== null && `T ${one.temperature}`,
    one.finish && (one.finish === "stop" ? `ended at ${one.matched ?? "its end"}` : one.finish), one.author === "model" && one.trainable === false && "carries no loss",
    one.media?.length > 0 && plural(one.media.length, "image")];
  const forks = shown.leaves?.(one);
  return [h("div", { class: `segment by-${known(one.author)}${one.author === "model" && one.trainable === false ? " untrained" : ""}` },
    h("p", { class: "who" }, h("b", {}, AUTHORS[one.author] ?? one.author),
      one.tokens !== undefined && h("span", {}, notes.filter(Boolean).join(", "))),
    h("div", { class: "text", dir: "ltr" }, content(one, shown))), forks];
}

function content(one, shown) {
  const pictures = (one.media ?? []).map((media) => image(shown.run, media));
  if (one.runs) return one.runs.map((run, at) => [text(run, shown), pictures[at]]);
  if (one.pieces) return tokens(one);
  return [one.text !== undefined ? text(one, shown) : one.ids.join(" "), pictures];
}

function tokens({ pieces, logprobs, ids }) {
  return pieces.map((piece, at) => {
    const chance = typeof logprobs?.[at] === "number" ? `p = ${Math.exp(logprobs[at]).toPrecision(3)}, log-prob ${logprobs[at]}` : "";
    const token = h("span", { class: `s${shade(logprobs?.[at])}`, title: `token ${ids[at]} ${chance}\n${plain(JSON.stringify(piece))}` });
    if (piece === "") token.classList.add("part");
    return put(token, piece);
  });
}

function text({ text: kept, length }, { whole }) {
  if (length === undefined) return kept;
  return [kept, h("span", { class: "cut" }, ` … ${count(length - kept.length)} characters more `),
    whole && h("button", { type: "button", onclick: whole }, "Show everything")];
}

function call(one, shown) {
  const spent = [one.seconds.queued > 0 && `queued ${seconds(one.seconds.queued)}`, `ran ${seconds(one.seconds.run)}`,
    one.seconds.answered !== null && `answered after ${seconds(one.seconds.answered)}`];
  const marks = [one.error && ["bad", words(one.error)], !one.valid && ["bad", one.invalid_reason || "not understood"], one.session_lost && ["bad", "session lost"],
    one.done && ["", "ended the trajectory"], one.truncated && ["", "cut"], one.isolation && ["", `isolation ${one.isolation}`]];
  const bad = one.error || !one.valid || one.session_lost;
  const measured = Object.entries(one.metrics).map(([name, value]) => `${name} ${reward(value)}`);
  return h("details", { class: bad ? "call failed" : "call", open: Boolean(bad) },
    h("summary", {}, h("b", {}, one.tool || "call"), h("span", { class: "quiet" }, spent.filter(Boolean).join(", ")),
      marks.filter(Boolean).map(([kind, name]) => h("span", { class: `badge ${kind}` }, name))),
    h("dl", {},
      h("dt", {}, "arguments"), h("dd", { class: "text", dir: "ltr" }, text(one.action, shown)),
      h("dt", {}, "answer"), h("dd", { class: "text", dir: "ltr" }, text(one.observation, shown)),
      one.reward !== null && [h("dt", {}, "reward of the tool"), h("dd", {}, reward(one.reward))],
      measured.length > 0 && [h("dt", {}, "measured"), h("dd", {}, measured.join(", "))],
      h("dt", {}, "id"), h("dd", {}, h("code", {}, one.id))));
}

function events({ events: noted }) {
  return noted.length > 0 && h("details", { class: "events" },
    h("summary", {}, plural(noted.length, "event")),
    h("ul", {}, noted.map((event) => h("li", {}, h("b", {}, event.kind), ` turn ${event.turn + 1} `, h("code", {}, JSON.stringify(event.data))))));
}

function figures({ figures: measured }) {
  return measured && h("details", { class: "events" }, h("summary", {}, "its line in the evaluation"), h("pre", {}, JSON.stringify(measured, null, 2)));
}

// By which names the same trajectory is found elsewhere: its trace, and the lines of the logs.
function ids({ name, kind, trace }, record) {
  return kind === "training" && trace && h("details", { class: "events" },
    h("summary", {}, "in traces and logs"),
    h("dl", { class: "ids" },
      h("dt", {}, "trace"), h("dd", {}, h("code", {}, trace)),
      h("dt", {}, "its lines in the run folder's logs"), h("dd", {}, h("code", {}, `grep -h '${name}[/"]' *.jsonl *.log`)),
      record.calls.length > 0 && [h("dt", {}, "ids of its calls, as tool services log them"),
        h("dd", {}, record.calls.map((one) => h("div", {}, h("code", {}, one.id))))]));
}

const timed = (run, { kind, step }) =>
  kind === "training" && step !== null && h("a", { href: address({ run, page: "timeline", at: String(step) }) }, "timeline of the step");

const known = (author) => (author in AUTHORS ? author : "other");
