"""What has to be made before a run can begin, and in which order: as make does, over paths.

Pure: whether something is there is asked of the caller. Invariants of a plan
- What is there is not made.
- What is missing is made by the one maker that names its path, after all that the maker reads.
- Among makers that wait for nothing the recipe's order counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from console.errors import NothingStarted

Kind = Literal["prepare", "render", "sft"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A path that a process reads. key: the recipe's key for it."""

    key: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """A command that makes `makes` from `needs`. name: the recipe's name for it. when_read: it is
    made only if a key reads it."""

    kind: Kind
    name: str
    makes: Path
    needs: tuple[Need, ...] = ()
    run: tuple[str, ...] = ()
    when_read: bool = False

    @property
    def where(self) -> str:
        """What the recipe calls it."""
        return f"[[console.prepare]] {self.name!r}" if self.kind == "prepare" else f"[{self.kind}]"


def plan(
    goals: Iterable[Need], makers: Sequence[Maker], there: Callable[[Path], bool]
) -> tuple[Maker, ...]:
    """The makers that have to run, in order. Raises NothingStarted for a path without a maker, a
    path with two, and a path that is made from itself."""
    return _Planning(makers, there).ordered(goals)


def unread(makers: Sequence[Maker], needs: Iterable[Need]) -> tuple[Need, ...]:
    """What is prepared and read by no key: the run itself wants it, a tool perhaps. What is made
    `when_read` alone is not among it, and does not read anything unless it is read."""
    reading = (maker for maker in makers if not maker.when_read)
    read = {need.path for need in needs} | {n.path for maker in reading for n in maker.needs}
    return tuple(
        Need(key=f"{maker.where}.makes", path=maker.makes)
        for maker in makers
        if maker.kind == "prepare" and not maker.when_read and maker.makes not in read
    )


class _Planning:
    def __init__(self, makers: Sequence[Maker], there: Callable[[Path], bool]) -> None:
        self._makers = _by_path(makers)
        self._there = there
        self._chosen: set[Path] = set()
        self._ordered: list[Maker] = []

    def ordered(self, goals: Iterable[Need]) -> tuple[Maker, ...]:
        for goal in goals:
            self._want(goal, ())
        # Depth first put a maker behind what it reads; prepared things come first where they can,
        # in the recipe's order, since servers start behind them.
        order = {path: number for number, path in enumerate(self._makers)}
        waiting = sorted(self._ordered, key=lambda m: (m.kind != "prepare", order[m.makes]))
        done: set[Path] = set()
        out: list[Maker] = []
        while waiting:
            ready = next(m for m in waiting if not self._reads(m) - done)
            waiting.remove(ready)
            done.add(ready.makes)
            out.append(ready)
        return tuple(out)

    def _reads(self, maker: Maker) -> set[Path]:
        return {need.path for need in maker.needs} & self._chosen

    def _want(self, need: Need, above: tuple[Maker, ...]) -> None:
        if self._there(need.path):
            return
        maker = self._makers.get(need.path)
        if maker is None:
            raise NothingStarted(_missing(need, tuple(self._makers.values())))
        if maker in above:
            raise NothingStarted(_circle(need, above[above.index(maker) :]))
        if maker.makes in self._chosen:
            return
        self._chosen.add(maker.makes)
        for inner in maker.needs:
            self._want(inner, (*above, maker))
        self._ordered.append(maker)


def _by_path(makers: Sequence[Maker]) -> dict[Path, Maker]:
    found: dict[Path, Maker] = {}
    for maker in makers:
        first = found.setdefault(maker.makes, maker)
        if first is not maker:
            raise NothingStarted(
                f"{first.where} and {maker.where} both make {maker.makes}: leave one of them out"
            )
    return found


def _circle(need: Need, chain: Sequence[Maker]) -> str:
    names = " and ".join(maker.where for maker in chain)
    return (
        f"{need.key} = {need.path} is missing, and {names} would make it of itself: name in "
        f"{need.key} what it begins with"
    )


def _missing(need: Need, makers: Sequence[Maker]) -> str:
    sentence = f"{need.key} = {need.path} is missing and nothing makes it: put it there"
    namesake = [maker for maker in makers if maker.makes.name == need.path.name]
    if namesake:
        maker = namesake[0]
        return f"{sentence}, or correct the path: {maker.where} makes {maker.makes}"
    if need.key == "policy.model":
        others = [m for m in makers if m.kind == "sft"]
        if others:
            return f"{sentence}, or set policy.model to what [sft] makes, {others[0].makes}"
    if need.key == "sft.data":
        return (
            f"{sentence}, or let a command write it: `engine sample` with --output, or "
            "`engine render` with [render] output = the same path"
        )
    return f"{sentence}, or name a command that makes it in [[console.prepare]]"
