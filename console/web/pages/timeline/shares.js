// What time goes into, in words: the kinds of spans, and shares of them as a sentence.

import { span } from "../format.js";

// In the order in which they are drawn and told.
export const KINDS = new Map([
  ["generate", "generation"],
  ["tool", "tools"],
  ["queue", "waiting for a place at a tool"],
  ["wait", "waiting for the first token"],
  ["open", "opening sessions"],
  ["rest", "the engine, and what has no stamp"],
]);

const LEAST = 0.01; // a smaller share is in the legend alone

export const PHASES = ["lease", "train", "export", "publish", "checkpoint"];

export function percent(share) {
  const whole = Math.round(share * 100);
  if (share > 0 && whole === 0) return "below 1 %";
  return `${whole} %`;
}

// [kind, share, words] of what took time, the largest first.
export const parts = (shares) =>
  Object.entries(shares).filter(([kind]) => KINDS.has(kind)).map(([kind, share]) => [kind, share, `${KINDS.get(kind)} ${percent(share)}`]);

// What is worth to be made faster: "tools 41 %, generation 37 %".
export function sentence(shares, idle) {
  const told = parts(shares).filter(([, share]) => share >= LEAST).map(([, , words]) => words).join(", ");
  const still = idle > 0.005 ? ` For ${percent(idle)} of the step nothing was in flight.` : "";
  return told ? `Of the trajectories' time: ${told}.${still}` : "";
}

// Seconds of each of the learner's phases: "lease 13 s, train 5 s".
export function spent(phases) {
  const sums = PHASES.map((name) => [name, phases.filter((one) => one.kind === "learner" && one.name === name).reduce((sum, one) => sum + one.to - one.from, 0)]);
  return sums.filter(([, ms]) => ms > 0).map(([name, ms]) => `${name} ${span(ms / 1000)}`).join(", ");
}
