"""How much does a reading of the reward change? SE-Search's groups, judged again by its variants.

The paper leaves readings open: what makes a query count, at which likeness two queries are one,
and whether "right" is exact match or F1. Recorded groups are rewarded again under each reading, by
the recipe's own reward function with one option changed, and the advantages of GRPO are compared
with those under the recipe's options. So one recording answers for all readings. It says nothing of
where training under another reading would have gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.studies.drawing import lines_over
from bench.studies.recordings import stage_of, staged_groups
from bench.studies.tables import cell, markdown, over_seeds
from bench.studies.types import Figures, Study
from toolwright.credit.advantages import group_advantage
from toolwright.imports import load_file
from toolwright.process.packaged import packaged
from toolwright.recipe import load_recipe
from toolwright.types import Trajectory

RECIPE = "se_search/recipe.toml"
STAGES = ((0, 10), (10, 25), (25, 50))
EPS = 1e-4
TOLERANCE = 1e-6
"""Between a recorded reward and the same reward again."""
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "likeness .3 as a ratio (literal)": {"threshold_semantics": "max_ratio"},
    "algorithm 1 as printed": {"query_rule": "printed"},
    "queries from 20 characters (section 4.1)": {"l_min": 20},
    "answers by exact match": {"answer": "em"},
    "right from F1 .5 on": {"f1_threshold": 0.5},
    "the last note alone": {"memory_scope": "last"},
    "without the query part": {"query_weight": 0.0},
    "without the memory part": {"memory_weight": 0.0},
    "without the format part": {"format_weight": 0.0},
}
"""Options of the reward function that replace the recipe's, by the name of the reading."""

Reward = Callable[[Trajectory], float]


def measure(folders: Mapping[int, Path]) -> Figures:
    """Changes by seed, stage and variant, over the groups that the runs' journals hold."""
    rows = [row for seed, folder in folders.items() for row in _of_run(seed, folder)]
    return {"study": STUDY.name, "seeds": list(folders), "rows": rows}


def rewards() -> tuple[Reward, dict[str, Reward]]:
    """(the recipe's reward function, those of the variants by name)."""
    recipes = packaged("recipes")
    options = load_recipe(recipes / RECIPE).shared.task.reward_options
    kind = load_file(recipes / "se_search/score.py").SearchReward

    def reward(changes: Mapping[str, Any]) -> Reward:
        function = kind(**{**options, **changes})
        return lambda one: sum(part.value for part in function(one).parts)

    return reward({}), {name: reward(changes) for name, changes in VARIANTS.items()}


def _of_run(seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    base, variants = rewards()
    found: dict[Any, list[dict[str, float]]] = defaultdict(list)
    for group in staged_groups(folder, STAGES, texts=True):
        stage = stage_of(group, STAGES)
        before = rewarded(group, base)
        for name, reward in variants.items():
            found[stage, name].append(compared(before, [reward(one) for one in group]))
    for stage in STAGES:
        for name in VARIANTS:
            own = found[stage, name]
            alive = [one for one in own if one["compared"]]
            yield {
                "seed": seed,
                "stage": list(stage),
                "variant": name,
                "groups": len(own),
                "members": sum(one["members"] for one in own),
                "flips": sum(one["flips"] for one in own),
                "signal_changes": sum(one["signal_changes"] for one in own),
                "rank_correlation": _mean([one["correlation"] for one in alive]),
                "groups_compared": len(alive),
            }


def rewarded(group: Sequence[Trajectory], base: Reward) -> list[float]:
    """The group's rewards under the recipe's options. Raises BenchError if they are not those of
    the recording: then no other reading would be comparable."""
    found = [base(one) for one in group]
    for one, again in zip(group, found, strict=True):
        if abs(again - one.reward) > TOLERANCE:
            raise BenchError(
                f"{one.id} was rewarded {one.reward:g} and is rewarded {again:g} now: measure with "
                "the recipe that made the run"
            )
    return found


def compared(before: Sequence[float], after: Sequence[float]) -> dict[str, float]:
    """Changes of one group's advantages. flips: members whose sign is opposite. signal_changes: 1
    if the group varies under one reward alone. correlation: Spearman's, of groups that vary under
    both (`compared`)."""
    one, other = (group_advantage(own, [0] * len(own), eps=EPS) for own in (before, after))
    alive = [any(values) for values in (one, other)]
    return {
        "members": len(one),
        "flips": sum(a * b < 0 for a, b in zip(one, other, strict=True)),
        "signal_changes": float(alive[0] != alive[1]),
        "compared": float(all(alive)),
        "correlation": spearman(one, other) if all(alive) else 0.0,
    }


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Rank correlation; ties have the mean of their ranks. Neither side is constant."""
    a, b = _ranks(one), _ranks(other)
    mean = (len(a) + 1) / 2
    above = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    spread = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    return float(above / spread**0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values
    ]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def table(figures: Figures) -> str:
    """Flips by stage, then signal and rank correlation over all stages; means over seeds, in
    which each group counts once."""
    heads = [f"flips, steps {a} to {b - 1}" for a, b in STAGES]
    lines = []
    for name in VARIANTS:
        own = [row for row in figures["rows"] if row["variant"] == name and row["groups"]]
        cells = [
            cell(row["flips"] / row["members"] for row in own if row["stage"] == list(stage))
            for stage in STAGES
        ]
        seeds = {seed: [row for row in own if row["seed"] == seed] for seed in figures["seeds"]}
        for part, whole in (("signal_changes", "groups"), ("ranks", "groups_compared")):
            cells.append(
                cell(
                    sum(_part(row, part) for row in rows) / whole_of
                    for rows in seeds.values()
                    if (whole_of := sum(row[whole] for row in rows))
                )
            )
        lines.append([name, *cells])
    return markdown(["reading", *heads, "signal gained or lost", "rank correlation"], lines)


def _part(row: Mapping[str, Any], part: str) -> float:
    """A sum over the row's groups."""
    if part == "ranks":
        return float(row["rank_correlation"] or 0.0) * float(row["groups_compared"])
    return float(row[part])


def picture(figures: Figures) -> str:
    """Share of opposite signs over the stages, one line a reading."""
    rows = [row for row in figures["rows"] if row["members"]]
    return lines_over(
        [f"{a} to {b - 1}" for a, b in STAGES],
        {
            name: [
                over_seeds(
                    row["flips"] / row["members"]
                    for row in rows
                    if row["variant"] == name and row["stage"] == list(stage)
                )
                for stage in STAGES
            ]
            for name in VARIANTS
        },
        x_name="training step",
        y_name="advantages of opposite sign",
    )


STUDY = Study(
    name="counterfactual-rewards",
    question="How much does a reading of SE-Search's reward change the advantages?",
    recipe=RECIPE,
    settings=('engine.history="all"',),
    measure=measure,
    table=table,
    picture=picture,
)
