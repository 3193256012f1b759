// Numbers and words as people read them.

const WHOLE = new Intl.NumberFormat("en");

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

export function seconds(value) {
  if (typeof value !== "number") return "";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Number((value * 1000).toPrecision(2))} ms`;
  return value < 100 ? `${value.toFixed(1)} s` : `${count(Math.round(value))} s`;
}

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
