// The group of a trajectory, side by side: other answers to the same question.

import { ask } from "../api.js";
import { fill, h } from "../dom.js";
import { judged, plural, reward, words } from "../format.js";
import { address } from "../place.js";

export async function showGroup(section, place, told) {
  const { members } = await ask("group", { run: place.run, name: told.family });
  if (members.length < 2) return;
  const rewards = members.map((one) => one.reward).filter((value) => typeof value === "number");
  const mean = rewards.reduce((sum, value) => sum + value, 0) / rewards.length;
  fill(section,
    h("h2", {}, told.kind === "evaluation" ? "The same question, under other weights" : "Its group"),
    h("p", { class: "quiet" }, plural(members.length, "trajectory", "trajectories"),
      rewards.length > 0 && `, mean reward ${reward(mean)}`),
    h("ul", { class: "members" }, members.map((one) => member(one, place))));
}

function member(one, place) {
  const own = one.name === place.trajectory;
  const { beside, sequence, ...alone } = place;
  return h("li", { class: own ? "own" : "", "aria-current": own ? "true" : null },
    h("p", { class: "head" },
      h("a", { href: address({ ...alone, trajectory: one.name }) }, one.name),
      h("span", { class: `score ${judged(one.reward)}` }, reward(one.reward))),
    h("p", { class: "answer text", dir: "ltr" }, one.answer || "no words kept"),
    h("p", { class: "quiet" },
      [words(one.stop || one.status), one.step === null ? "" : `step ${one.step}`, plural(one.calls, "call"), one.failed ? `${one.failed} failed` : ""].filter(Boolean).join(", "),
      " ", !own && h("a", { href: address({ ...place, beside: one.name }) }, one.name === beside ? "shown beside" : "beside")));
}
