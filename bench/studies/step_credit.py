"""Does the step advantage find the right tool? In the market of SEARL the right tool is known.

A step is *right* if its tool's answer is the true result of a swap that the question asks for. The
advantages of recorded steps are computed again, by the learner's own functions, for each way to
give credit. A way is judged by the share of pairs in which the right step has the higher advantage,
a tie counting one half: the area under the ROC curve. A pair is a right and a wrong step of one
group. A step that failed is easily told from a right one, so pairs of steps that both ran count
apart, and among those the pairs of one swap.

Formulas: SEARL, equations 4 to 7 (arXiv:2604.07791); its released code by `joined_advantage`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from bench.studies.drawing import lines_over
from bench.studies.recordings import stage_of, staged_groups
from bench.studies.tables import cell, markdown, over_seeds
from bench.studies.types import Figures, Study
from engine.api import read_json_call
from learner.config.objective import Credit
from learner.credit.members import Member
from toolwright.credit.advantages import group_advantage
from toolwright.credit.turns import Turns, turn_terms
from toolwright.imports import load_file
from toolwright.process.packaged import packaged
from toolwright.statistics import Ratio, mean_of, student
from toolwright.types import CallRecord, ToolErrorKind, Trajectory

STAGES = ((0, 5), (5, 15), (15, 45))
"""First step and the step after the last, of each stage of training."""
EPS = 1e-4
"""Added to a deviation, as in the recipe."""
_NAMES = (re.compile(r"(\w+)_to_(\w+)"), re.compile(r"(?P<other>\w+)_from_(?P<good>\w+)"))

KINDS = ("all", "ran", "one swap")
"""Pairs: all, those of steps that both ran, and of those the ones for one swap."""

Values = list[list[float]]
"""Advantages by trajectory and turn."""


def _turns(**settings: Any) -> Callable[[Sequence[Turns]], Values]:
    credit = Credit.model_validate(settings)
    return lambda group: turn_terms(group, credit, eps=EPS)[0]


def _episode(*, std: str = "population", steps: bool = True) -> Callable[[Sequence[Turns]], Values]:
    """GRPO: the trajectory's advantage for each of its turns."""

    def of(group: Sequence[Turns]) -> Values:
        totals = [own.outcome + (sum(own.rewards) if steps else 0.0) for own in group]
        found = group_advantage(totals, [0] * len(group), std=std, eps=EPS)  # type: ignore[arg-type]
        return [[value] * len(own.rewards) for value, own in zip(found, group, strict=True)]

    return of


def _sum(*parts: Callable[[Sequence[Turns]], Values]) -> Callable[[Sequence[Turns]], Values]:
    def of(group: Sequence[Turns]) -> Values:
        return [
            [sum(values) for values in zip(*own, strict=True)]
            for own in zip(*(part(group) for part in parts), strict=True)
        ]

    return of


STEP = _turns(turns="anchor")
WITH_OUTCOME = _turns(turns="anchor", outcome_in_return=True)
CREDITS: Mapping[str, Callable[[Sequence[Turns]], Values]] = {
    "step": STEP,
    "step, outcome in the return": WITH_OUTCOME,
    "episode": _episode(),
    "episode, outcome alone": _episode(steps=False),
    "episode + step (the paper)": _sum(_episode(), STEP),
    "episode + step, outcome in the return": _sum(_episode(), WITH_OUTCOME),
    "released code": _sum(_episode(std="none"), _turns(turns="released")),
}
"""Ways to give credit, by the names of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketStep:
    """A step that called or made a tool for a swap."""

    trajectory: int
    turn: int
    good: str
    """Good that the tool takes."""
    right: bool
    """Whether the tool's answer is the true one, for a swap of the question."""
    ran: bool
    """Whether the call ran without an error."""


def measure(folders: Mapping[int, Path]) -> Figures:
    """Areas by seed, stage and way, from the groups that the runs' journals hold. `error`: standard
    error of one seed's area, with a group as one cluster."""
    rows = [row for seed, folder in folders.items() for row in _of_run(seed, folder)]
    return {"study": STUDY.name, "seeds": list(folders), "rows": rows}


def _of_run(seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    market = load_file(packaged("recipes") / "searl/market/task.py")
    areas: dict[tuple[Any, ...], Ratio] = defaultdict(Ratio)
    ties: dict[tuple[Any, ...], int] = defaultdict(int)
    counts: dict[tuple[int, int], list[int]] = {stage: [0, 0] for stage in STAGES}
    for group in staged_groups(folder, STAGES):
        stage = stage_of(group, STAGES)
        steps = [
            one for place, member in enumerate(group) for one in steps_of(place, member, market)
        ]
        assert stage is not None
        counts[stage][0] += len(steps)
        counts[stage][1] += sum(one.right for one in steps)
        turns = [Member(group="", trajectory=one, rows=()).turns for one in group]
        for name, credit in CREDITS.items():
            of_kind: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for kind, won in pairs(steps, credit(turns)):
                of_kind[kind].append(won)
            for kind, wins in of_kind.items():
                areas[stage, name, kind].add(sum(wins), len(wins))
                ties[stage, name, kind] += wins.count(0.5)
    for stage in STAGES:
        for name in CREDITS:
            own = {kind: areas[stage, name, kind] for kind in KINDS}
            yield {
                "seed": seed,
                "stage": list(stage),
                "credit": name,
                "steps": counts[stage][0],
                "right": counts[stage][1],
                "area": {kind: one.value for kind, one in own.items()},
                "error": {kind: one.stderr for kind, one in own.items()},
                "pairs": {kind: int(one.whole) for kind, one in own.items()},
                "ties": {kind: ties[stage, name, kind] for kind in KINDS},
            }


def steps_of(place: int, trajectory: Trajectory, market: Any) -> Iterator[MarketStep]:
    """Steps that used a tool for a swap. market: the module of the task. place: of the trajectory
    in its group."""
    goods = [word for word in re.findall(r"\w+", _question(trajectory)) if word in market.GOODS]
    asked = set(pairwise(goods))
    for call in trajectory.calls:
        found = _swap(call)
        if found is None:
            continue
        good, other, amount = found
        true = market.swapped(amount, market.RATES[good]) if good in market.RATES else None
        right = (good, other) in asked and true is not None and _result(call) == true
        ran = call.outcome.error is ToolErrorKind.NONE
        yield MarketStep(trajectory=place, turn=call.turn, good=good, right=right, ran=ran)


def pairs(steps: Iterable[MarketStep], values: Values) -> Iterator[tuple[str, float]]:
    """(kind, 1 if the right step has more, 0.5 if as much, else 0) of every pair of a right and a
    wrong step, for each of its kinds."""
    sides: dict[bool, list[MarketStep]] = {True: [], False: []}
    for step in steps:
        sides[step.right].append(step)
    for right, wrong in product(sides[True], sides[False]):
        more = values[right.trajectory][right.turn]
        less = values[wrong.trajectory][wrong.turn]
        won = 1.0 if more > less else 0.5 if more == less else 0.0
        yield "all", won
        if wrong.ran:
            yield "ran", won
            if right.good == wrong.good:
                yield "one swap", won


def _question(trajectory: Trajectory) -> str:
    return str(trajectory.task.messages[-1]["content"])


def _swap(call: CallRecord) -> tuple[str, str, int] | None:
    """(good, the other good, amount) of a call of a tool that swaps, or of its creation."""
    asked = read_json_call(call.action, "<tool_call>", "</tool_call>")
    given: Mapping[str, Any] = asked.arguments or {}
    name, inputs = asked.tool, given
    if "code" in given:
        name, inputs = str(given.get("name")), given.get("inputs") or {}
    amount = inputs.get("n") if isinstance(inputs, Mapping) else None
    matches = [match for pattern in _NAMES if (match := pattern.fullmatch(name))]
    if not matches or not isinstance(amount, int):
        return None
    named = matches[0].groupdict()
    good, other = (named["good"], named["other"]) if named else matches[0].groups()
    return good, other, amount


def _result(call: CallRecord) -> Any:
    try:
        found = json.loads(call.outcome.observation)
    except ValueError:
        return None
    return found.get("execution_result") if isinstance(found, dict) else found


def table(figures: Figures) -> str:
    """Areas of pairs that both ran, one column a stage, then other pairs and the share of ties, in
    the first stage, which has most pairs of one swap. Below it, differences within a seed from
    `episode`; * marks those beyond 95 % of Student's t, each taken alone."""
    heads = [f"steps {a} to {b - 1}" for a, b in STAGES]
    lines = []
    for name in CREDITS:
        cells = [cell(*_of(figures, name, stage)) for stage in STAGES]
        cells += [cell(*_of(figures, name, STAGES[0], kind)) for kind in ("one swap", "all")]
        first = [row for row in _rows(figures, name, STAGES[0]) if row["pairs"]["ran"]]
        cells.append(cell(row["ties"]["ran"] / row["pairs"]["ran"] for row in first))
        lines.append([name, *cells])
    heads += ["first: one swap", "first: all pairs", "first: ties"]
    less = [
        [name, *(_difference(figures, name, stage) for stage in STAGES)]
        for name in CREDITS
        if name != "episode"
    ]
    below = markdown(["less `episode`", *heads[: len(STAGES)]], less)
    return f"{markdown(['credit', *heads], lines)}\n\n{below}"


def _difference(figures: Figures, name: str, stage: tuple[int, int]) -> str:
    """Mean difference from `episode` over the seeds; "-" for one seed."""
    pairs = zip(_of(figures, name, stage)[0], _of(figures, "episode", stage)[0], strict=True)
    found = mean_of(a - b for a, b in pairs if a is not None and b is not None)
    if found is None or found.stderr is None:
        return "-"
    mark = " *" if abs(found.mean) > student(found.n - 1) * found.stderr else ""
    return f"{found.mean:+.3f} ±{found.stderr:.3f}{mark}"


def picture(figures: Figures) -> str:
    """Areas over the stages, one line a way."""
    return lines_over(
        [f"{a} to {b - 1}" for a, b in STAGES],
        {name: [over_seeds(*_of(figures, name, stage)) for stage in STAGES] for name in CREDITS},
        x_name="training step",
        y_name="share of pairs in order",
    )


def _rows(figures: Figures, name: str, stage: tuple[int, int]) -> list[dict[str, Any]]:
    return [row for row in figures["rows"] if row["credit"] == name and row["stage"] == list(stage)]


def _of(
    figures: Figures, name: str, stage: tuple[int, int], kind: str = "ran"
) -> tuple[list[float | None], list[float | None]]:
    """(areas, their errors) of all seeds."""
    rows = _rows(figures, name, stage)
    return [row["area"][kind] for row in rows], [row["error"][kind] for row in rows]


STUDY = Study(
    name="step-credit",
    question="Does the step advantage find the right tool?",
    recipe="searl/recipe.toml",
    settings=('engine.history="all"',),
    measure=measure,
    table=table,
    picture=picture,
)
