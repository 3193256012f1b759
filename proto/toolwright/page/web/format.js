// Numbers and words as people read them.

const WHOLE = new Intl.NumberFormat("en");
const FIGURE = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const MOMENT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

export const count = (value) => WHOLE.format(value);

export function plural(value, one, many = one + "s") {
  return `${count(value)} ${value === 1 ? one : many}`;
}

// A reward; what is no number comes as a word, or as nothing.
export function reward(value) {
  if (typeof value !== "number") return value === null ? "none" : String(value);
  const text = Math.abs(value) >= 1e5 ? value.toPrecision(3) : String(Number(value.toFixed(3)));
  return text.replace("-", "\u2212");
}

// An advantage, or what a turn earned: "+0.71", "−1.2", "0".
export const signed = (value) => (typeof value === "number" && value > 0 ? "+" : "") + reward(value);

export function seconds(value) {
  if (typeof value !== "number") return "";
  if (value === 0) return "0 s";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Number((value * 1000).toPrecision(2))} ms`;
  return value < 100 ? `${value.toFixed(1)} s` : `${count(Math.round(value))} s`;
}

// A measured value, to so many digits: "0.4125", "12,340", "1.2e-7".
export function figure(value, digits = 4) {
  if (typeof value !== "number") return "";
  const size = Math.abs(value);
  const form = digits === 4 ? FIGURE : new Intl.NumberFormat("en", { maximumSignificantDigits: digits });
  const text = size !== 0 && (size >= 1e9 || size < 1e-3) ? size.toExponential(Math.max(digits - 2, 1)).replace(/\.?0+e/, "e") : form.format(size);
  return value < 0 ? `\u2212${text}` : text;
}

// Measured values beside each other, with as many digits as make them differ.
export function figures(values) {
  const shown = (digits) => values.map((value) => figure(value, digits));
  for (let digits = 4; digits < 15; digits++) if (new Set(shown(digits)).size === values.length) return shown(digits);
  return shown(15);
}

// A time span: "4.2 s", "12 min 3 s", "3 h 20 min".
export function span(value) {
  if (typeof value !== "number") return "";
  if (value < 60) return `${Number(value.toFixed(1))} s`;
  const whole = Math.round(value);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours ? `${count(hours)} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

// When something was, by this browser's clock and zone. at: unix seconds.
export const moment = (at) => (typeof at === "number" ? MOMENT.format(new Date(at * 1000)) : "");

// "max_turns" as "max turns".
export const words = (name) => name.replaceAll("_", " ");

// Whether a reward is more like that of a right answer, 1, or nothing.
export function judged(value) {
  if (typeof value !== "number") return "none";
  if (value <= 0) return "bad";
  return value >= 0.5 ? "good" : "";
}

// Which of ten shades a log-prob has: 0 for what was certain, 9 for what was nearly impossible.
export function shade(logprob) {
  return typeof logprob === "number" ? Math.min(9, Math.floor((1 - Math.exp(logprob)) * 10)) : 0;
}
