"""The ladder: the runs of a recipe's variations, and the folder of each.

It refuses what can be refused without a process: an unknown name, a variation that the recipe
refuses or that changes nothing, a file without a maker, one memory for two runs. Seeds are 1, 2, 3
and so on. All variations of a seed follow its base, so an interruption leaves whole pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from console.ablate.changes import (
    Changes,
    Values,
    changes,
    keeps_warm_up,
    of_the_learning,
    values_of,
)
from console.asked import needs
from console.asked.plan import Maker
from console.asked.setup import DEFAULT, Options, Setup, beside, set_up
from console.config import BASE, Words
from console.course.made import there
from console.course.session import planned
from console.errors import NothingStarted

NONE = '""'
"""Value of a memory's store that means the run folder's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderOptions:
    """What was typed. only: names of the variations to run; empty = all."""

    recipe: Path
    overrides: tuple[str, ...] = ()
    seeds: int = 3
    only: tuple[str, ...] = ()
    folder: Path | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One row. asked: whether it is run; the others are shown where they have been.
    shares_policy: training begins with what the base's run of the same seed made."""

    name: str
    set: tuple[str, ...]
    changes: Changes
    asked: bool
    shares_policy: bool

    def __str__(self) -> str:
        """As a sentence names it."""
        return f"ablation {self.name!r}" if self.set else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One run of the ladder: a variation under a seed.

    in_place: the same run in the recipe's own folder, for a look at the recipe. learning: what has
    to be the same whenever the run goes on. policy: the warm-up of the base's run of this seed,
    where training begins with what that makes; base: the folder of that run.
    """

    variation: Variation
    seed: int
    folder: Path
    options: Options
    in_place: Options
    learning: Values
    policy: Maker | None = None
    base: Path | None = None

    @property
    def name(self) -> str:
        """As people read it."""
        return f"{self.variation.name}, seed {self.seed}"

    def awaits(self) -> str:
        """Why it cannot begin: what it would begin with is not there, or not whole. Empty where it
        can."""
        if self.policy is None or self.base is None:
            return ""
        policy = self.policy.makes
        if there(self.base, (self.policy,))(policy):
            return ""
        return (
            f"it begins with {policy}, which the {BASE}'s run of this seed makes and which is not "
            f"there: `toolwright status {self.base}` tells what became of that run; one that is "
            "done makes it again once its folder is moved away"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """rungs: in the order in which they are run. steps: of each run."""

    recipe: Path
    folder: Path
    seeds: tuple[int, ...]
    steps: int
    variations: tuple[Variation, ...]
    rungs: tuple[Rung, ...]
    words: Words
    overrides: tuple[str, ...] = ()
    by: str = ""
    threshold: float | None = None

    @property
    def overruled(self) -> tuple[str, ...]:
        """Sentences: where a variation sets a key of its own that was typed for all runs."""
        typed = {_key(one) for one in self.overrides}
        own = {
            str(variation): [key for key in map(_key, variation.set) if key in typed]
            for variation in self.variations
            if variation.asked
        }
        return tuple(
            f"{name} has its own {', '.join(keys)}: that of --set is not for it"
            for name, keys in own.items()
            if keys
        )

    @property
    def to_run(self) -> tuple[Rung, ...]:
        return tuple(rung for rung in self.rungs if rung.variation.asked)


def ladder_of(asked: LadderOptions) -> Ladder:
    """NothingStarted names what does not fit."""
    if asked.threshold is not None and not math.isfinite(asked.threshold):
        raise NothingStarted(f"--threshold {asked.threshold}: write a number that a reward can be")
    file = asked.recipe / DEFAULT if asked.recipe.is_dir() else asked.recipe
    options = Options(recipe=file, overrides=asked.overrides, seed=1)
    base = set_up(options)
    if not base.table.ablations:
        raise NothingStarted(
            f"{file} names no variations: write each as [[console.ablations]] with a name and "
            'set = ["table.key=value"]'
        )
    _known(asked.only, [one.name for one in base.table.ablations])
    folder = (asked.folder or beside(base.run)).absolute().resolve()
    values = values_of(base.recipe)
    maker = _warm_up(base)
    variations = [Variation(name=BASE, set=(), changes={}, asked=True, shares_policy=False)]
    for one in base.table.ablations:
        found = _changes(one.name, _with(options, one.set), values)
        rendered = "render" in base.recipe.raw
        shares = maker is not None and keeps_warm_up(found, rendered=rendered)
        variations.append(
            Variation(
                name=one.name,
                set=one.set,
                changes=found,
                asked=not asked.only or one.name in asked.only,
                shares_policy=shares,
            )
        )
    seeds = tuple(range(1, asked.seeds + 1))
    rungs = [
        _rung(asked, file, folder, variation, seed, maker)
        for seed in seeds
        for variation in variations
    ]
    _memories_differ(rungs)
    return Ladder(
        recipe=base.recipe.path,
        folder=folder,
        seeds=seeds,
        steps=base.steps,
        variations=tuple(variations),
        rungs=tuple(rungs),
        words=base.table.report,
        overrides=asked.overrides,
        by=base.table.ablate_by,
        threshold=asked.threshold,
    )


def _key(override: str) -> str:
    return override.partition("=")[0]


def _known(only: Sequence[str], names: Sequence[str]) -> None:
    for name in only:
        if name != BASE and name not in names:
            near = get_close_matches(name, names, n=1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise NothingStarted(
                f"--only {name}: the recipe has no such variation{meant}; there are "
                f"{', '.join(names)}"
            )


def _with(options: Options, sets: Sequence[str]) -> Options:
    return replace(options, overrides=(*options.overrides, *sets))


def _changes(name: str, options: Options, base: Values) -> Changes:
    try:
        found = changes(base, values_of(set_up(options).recipe))
    except NothingStarted as error:
        raise NothingStarted(f"ablation {name!r}: {error}") from error
    if not found:
        raise NothingStarted(
            f"ablation {name!r} changes nothing: the recipe has these values already"
        )
    return found


def _warm_up(setup: Setup) -> Maker | None:
    """[sft], where it makes what training begins with, inside of the run folder. What a command of
    the recipe makes for a seed is the same in every run of that seed anyway."""
    policy = setup.recipe.resolve(setup.recipe.shared.policy.model)
    makers = needs.makers(setup.recipe, setup.table)
    found = (one for one in makers if one.kind == "sft" and one.makes == policy)
    return next((one for one in found if policy.is_relative_to(setup.run)), None)


def _rung(
    asked: LadderOptions,
    file: Path,
    folder: Path,
    variation: Variation,
    seed: int,
    maker: Maker | None,
) -> Rung:
    place = folder / variation.name / f"seed-{seed}"
    words = (*asked.overrides, *variation.set)
    in_place = Options(recipe=file, overrides=words, seed=seed)
    options = replace(in_place, folder=place)
    try:
        # A ladder may be moved as a whole: what the folder's name brings along is left out.
        learning = of_the_learning(values_of(set_up(in_place).recipe))
        setup = set_up(options)
        planned(setup)
    except NothingStarted as error:
        raise NothingStarted(f"{variation}, seed {seed}: {error}") from error
    base = policy = None
    if variation.shares_policy and maker is not None:
        base = folder / BASE / f"seed-{seed}"
        own = setup.recipe.resolve(setup.recipe.shared.policy.model)
        policy = replace(maker, makes=base / own.relative_to(setup.run))
        options = _with(options, (f"policy.model={policy.makes}",))
    return Rung(
        variation=variation,
        seed=seed,
        folder=place,
        options=options,
        in_place=in_place,
        learning=learning,
        policy=policy,
        base=base,
    )


def _memories_differ(rungs: Iterable[Rung]) -> None:
    """NothingStarted where what one run remembers would be found by another."""
    seen: dict[str, Rung] = {}
    for rung in rungs:
        if rung.learning.get("memory.store", NONE) == NONE:
            continue
        store = set_up(rung.options).recipe.raw["memory"]["store"]
        if (other := seen.setdefault(store, rung)) is not rung:
            raise NothingStarted(
                f"memory.store = {store!r} would be one memory for {other.name} and {rung.name}: "
                'leave it out, or write "${run.folder}/memory.sqlite"'
            )
