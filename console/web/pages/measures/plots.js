// What the page draws: the plots of one run as they are, those of several laid over each other. Pure.

export const COLOURS = 8;
export const CLOSED = "others"; // the section that is shown when it is asked for

// Sections of one run: plots of the same section stand together, and a section that only `more` has
// behind the first.
export function joined(sections, more) {
  const found = new Map(sections.map((one) => [one.key, one]));
  const [first, ...rest] = sections.map(({ key }) => key);
  const added = more.map(({ key }) => key).filter((key) => !found.has(key));
  for (const { key, title, plots } of more) found.set(key, { key, title, plots: [...(found.get(key)?.plots ?? []), ...plots] });
  return [first, ...added, ...rest].filter(Boolean).map((key) => found.get(key));
}

// answers: [{ place, name, sections }], place: which colour a run has. Returns sections of plots.
export function laid(answers) {
  return answers.length === 1 ? answers[0].sections : together(answers);
}

// A colour comes again with another dash.
export function style_of(place) {
  const dash = Math.floor(place / COLOURS) % 3;
  return `c${place % COLOURS}${dash ? ` dash${dash}` : ""}`;
}

// A plot for each line of a plot, in which a line is a run.
function together(answers) {
  const sections = new Map();
  for (const { place, name, sections: own } of answers) {
    for (const { key, title, plots } of own) {
      if (!sections.has(key)) sections.set(key, { key, title, plots: new Map() });
      const found = sections.get(key).plots;
      for (const plot of plots) {
        for (const line of plot.lines) {
          // Suites have plots of their own.
          if (line.suite && ["curve", "suites"].includes(plot.key)) continue;
          const which = `${plot.key}\n${line.name}`;
          if (!found.has(which)) found.set(which, { ...plot, key: which, title: title_of(plot, line), kind: "lines", lines: [] });
          const laid = found.get(which);
          laid.lines.push({ ...line, name, run: name, style: style_of(place) });
          // An edge that holds for one run alone would cut off another.
          if (laid.low !== plot.low) laid.low = null;
          if (laid.high !== plot.high) laid.high = null;
        }
      }
    }
  }
  return [...sections.values()]
    .map((section) => ({ ...section, plots: [...section.plots.values()] }))
    .filter((section) => section.plots.length > 0);
}

function title_of(plot, line) {
  if (plot.lines.length === 1 && plot.key !== "curve") return plot.title;
  return plot.key === "curve" ? line.name : `${plot.title}: ${line.name}`;
}

// The plots of a run over its hours of training. clock: steps, and the hours at the end of each.
export function over_hours(sections, { steps, hours }) {
  const at = (step) => hours[steps.findLastIndex((one) => one <= step)] ?? 0;
  const turned = (line) => ({ ...line, x: line.x.map(at) });
  const plots = (of) => of.map((plot) => ({ ...plot, axis: "hours", marks: [], lines: plot.lines.map(turned) }));
  return sections.map((section) => ({ ...section, plots: plots(section.plots) }));
}

// Those whose title or lines have all the words.
export function matching(sections, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return sections;
  const has = (plot) => {
    const said = [plot.title, ...plot.lines.map((line) => line.name)].join(" ").toLowerCase();
    return words.every((word) => said.includes(word));
  };
  return sections.map((section) => ({ ...section, plots: section.plots.filter(has) })).filter((section) => section.plots.length > 0);
}

// The trajectories of a point, as filters of the table; null where a point has none of its own. What the
// index measured stands at the step of the weights, what the learner measured one step later.
export function from_point(key, { suite, x }, at) {
  if (key === "imitation") return null;
  const of_index = key.startsWith("label:") || key.startsWith("rewards") || key.startsWith("reasons");
  const [, , ...label] = key.split("\n")[0].split(":");
  if (of_index) return { suite: label.join(":") || "training", step_from: String(x[at]), step_to: x[at + 1] === undefined ? "" : String(x[at + 1] - 1) };
  const step = String(suite ? x[at] : Math.max(x[at] - 1, 0));
  return { suite: suite || "training", step_from: step, step_to: step };
}
