"""The page: well-formed XHTML that needs nothing else, no script and no network either.

Every text that comes from a run goes through `text`: names of folders, metrics and keys are a
stranger's.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.compare.curves import INTERVAL, curves, evaluated, names, suites
from console.compare.runs import differences, hours, remarks, steps
from console.record.run import RunFiles
from console.record.types import Evaluation
from console.verdict import shown_error
from toolwright.page import SHARED_STYLE
from toolwright.page.charts import SMALL, Line, line_chart
from toolwright.page.text import text

COLOURS = 8
"""Colours --c0, --c1, ... of the shared style sheet."""
DASHES = ("", "7 4", "2 3")
"""A colour comes again with the next dash."""

MOST_OTHERS = 200
"""Charts below the fold: a run writes some sixty metrics."""
LONGEST_VALUE = 300
"""Letters of a recipe's value that the table shows."""

STYLE = """
body { margin: 0 auto; padding: 2rem 1.2rem 4rem; max-width: 74rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; } h3 { font-size: .92rem; margin: 0; }
ul.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; }
ul.legend svg { display: inline-block; width: 30px; height: 10px; margin-right: .4rem; }
.charts { display: grid; gap: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(22rem, 1fr)); }
figure { margin: 0; } svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--rule); } .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.raw { stroke-width: 1; opacity: .3; } .error { stroke-width: 1; opacity: .6; }
circle.dot, circle.spot { stroke: none; } circle.spot { fill-opacity: 0; }
circle.spot:hover { fill-opacity: 1; }
.hours { display: none; } #by-hours:checked ~ main .hours { display: block; }
#by-hours:checked ~ main .steps { display: none; }
table { border-collapse: collapse; font-size: .86rem; margin-bottom: 1.2rem; }
.scroll { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; overflow-wrap: anywhere; min-width: 6rem; }
.note { color: var(--soft); } summary { cursor: pointer; margin: 2rem 0 .6rem; }
"""


def page(runs: Sequence[RunFiles], *, window: int) -> str:
    """The runs' evaluations and curves over each other, and what their recipes differ in."""
    labels = [text(run.name) for run in runs]
    first, others = names(runs)
    noted = (line for run in runs for line in remarks(run))
    said = "".join(f'<p class="note">{text(line)}</p>' for line in noted)
    smoothed = (
        f'<p class="note">Bold: mean over the last {window} steps. Faint: as measured.</p>'
        if window > 1
        else ""
    )
    return f"""<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head><meta charset="utf-8"/><title>{", ".join(labels)}</title>
<style>{_style(len(runs))}</style></head>
<body>
<h1>{len(runs)} {"run" if len(runs) == 1 else "runs"}</h1>
<ul class="legend">{"".join(_legend(i, run, labels[i]) for i, run in enumerate(runs))}</ul>
{smoothed}{said}
<input type="radio" name="axis" id="by-steps" checked="checked"/>
<label for="by-steps">by step</label>
<input type="radio" name="axis" id="by-hours"/>
<label for="by-hours">by hours of training</label>
<main>
<h2>Evaluations</h2>
{_evaluations(runs, labels)}
<h2>Training</h2>
<div class="charts">{_figures(runs, first, window)}</div>
<h2>What the recipes differ in</h2>
{_table(runs, labels)}
<details><summary>{_others(len(others))}</summary>
<div class="charts">{_figures(runs, others[:MOST_OTHERS], window)}</div></details>
</main>
</body>
</html>
"""


def _style(count: int) -> str:
    """count: number of runs, each with a colour and a dash."""
    out = [SHARED_STYLE.read_text(encoding="utf-8"), STYLE]
    for run in range(count):
        colour, dash = f"var(--c{run % COLOURS})", DASHES[run // COLOURS % len(DASHES)]
        dashes = f" stroke-dasharray: {dash};" if dash else ""
        out.append(f".r{run} {{ stroke: {colour}; fill: {colour};{dashes} }}")
        out.append(f".line.r{run} {{ fill: none; }} .error.r{run} {{ stroke-dasharray: none; }}")
    return "\n".join(out)


def _legend(index: int, run: RunFiles, label: str) -> str:
    line = (
        f'<svg viewBox="0 0 30 10"><line class="line r{index}" x1="0" x2="30" y1="5" y2="5"/></svg>'
    )
    return f"<li>{line}{label}, {len(steps(run))} steps, {max(hours(run).values()):.2f} h</li>"


def _figures(runs: Sequence[RunFiles], metrics: Sequence[str], window: int) -> str:
    return "\n".join(
        _figure(name, by_hours, curves(runs, name, window=window, by_hours=by_hours))
        for name in metrics
        for by_hours in (False, True)
    )


def _figure(name: str, by_hours: bool, drawn: Sequence[Line]) -> str:
    style, x_name = ("hours", "hours") if by_hours else ("steps", "step")
    svg = line_chart(drawn, x_name=x_name, y_name=name, size=SMALL)
    return f'<figure class="{style}"><h3>{text(name)}</h3>{svg}</figure>'


def _evaluations(runs: Sequence[RunFiles], labels: Sequence[str]) -> str:
    """A table of first and last measurements and a chart a suite; which runs have none."""
    names_ = suites(runs)
    without = [label for run, label in zip(runs, labels, strict=True) if not run.record.evaluations]
    said = f'<p class="note">Without evaluations: {", ".join(without)}.</p>' if without else ""
    if not names_:
        return said
    figures = "\n".join(
        _figure(name, by_hours, evaluated(runs, name, by_hours=by_hours))
        for name in names_
        for by_hours in (False, True)
    )
    head = "".join(f"<th>{label}</th>" for label in labels)
    rows = "".join(
        f"<tr><td>{text(name)}</td><td>{_sampling(runs, name)}</td>"
        f"{''.join(_measured(run.record.curve(name)) for run in runs)}</tr>"
        for name in names_
    )
    return (
        f'{said}<p class="note">Mean rewards at the first and the last step that were evaluated; '
        f"± is {INTERVAL:g} standard errors, n the rows of the last.</p>"
        f'<div class="scroll"><table><tr><th>suite</th><th>sampling</th>{head}</tr>{rows}</table>'
        f'</div><div class="charts">{figures}</div>'
    )


def _sampling(runs: Sequence[RunFiles], suite: str) -> str:
    """How the suite's answers were sampled, in each way that occurs."""
    ways = {_way(e.temperature): None for run in runs for e in run.record.curve(suite)}
    return text(", ".join(filter(None, ways)))


def _way(temperature: float | None) -> str:
    if temperature is None:
        return ""
    return f"temperature {temperature:g}" if temperature else "greedy"


def _measured(found: Sequence[Evaluation]) -> str:
    if not found:
        return "<td>none</td>"
    first, last = found[0], found[-1]
    came = f"{_mean(first)} at {first.step}, " if first is not last else ""
    return f"<td>{came}{_mean(last)} at {last.step}, n = {last.n}</td>"


def _mean(one: Evaluation) -> str:
    error = shown_error(one)
    if error is None:
        return f"{one.reward:.3g}"
    return f"{one.reward:.3g} ± {INTERVAL * error:.2g}"


def _others(count: int) -> str:
    drawn = f", the first {MOST_OTHERS} of them" if count > MOST_OTHERS else ""
    return f"{count} other metrics{drawn}"


def _table(runs: Sequence[RunFiles], labels: Sequence[str]) -> str:
    rows = differences(runs)
    if not rows:
        return '<p class="note">Nothing.</p>'
    head = "".join(f"<th>{label}</th>" for label in labels)
    body = "".join(
        f"<tr><td>{text(key)}</td>{''.join(map(_cell, values))}</tr>" for key, values in rows
    )
    return f'<div class="scroll"><table><tr><th>key</th>{head}</tr>{body}</table></div>'


def _cell(value: str) -> str:
    short = value if len(value) <= LONGEST_VALUE else value[:LONGEST_VALUE] + " ..."
    return f"<td>{text(short)}</td>"
