"""The search for a history that breaks the contract. Hypothesis draws and shortens histories.

Hypothesis draws a few bytes for each step of a history. The bytes choose a request and its values.
Zeros are a step without a request, so Hypothesis shortens a history by zeros. Hypothesis runs in
threads, and the requests run on the event loop of the check.

Invariants
- One seed always draws the same steps.
- After its time a search ends at its next request, even while Hypothesis shortens a history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from toolsvc.check.client import CheckClient
from toolsvc.check.model.history import Broken, History, Plan
from toolsvc.check.model.model import Model
from toolsvc.check.model.player import Player, traits_of
from toolsvc.check.probe import Kind
from toolsvc.check.subject import Subject

Value = TypeVar("Value")
MOST_TOOLS = 3
STEPS = 80
"""Number of random steps in a history."""
SETTINGS = settings(
    max_examples=2,  # the history of zeros, which has no request, and a random one
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
)
_STEP = st.binary(min_size=6, max_size=6)
_BYTE = st.binary(min_size=1, max_size=1)


@dataclass(frozen=True, slots=True)
class Breach:
    """A history whose last answer breaks the contract, in words."""

    seed: int
    history: str

    def __str__(self) -> str:
        return f"history {self.seed}: {self.history}"


class OutOfTime(BaseException):
    """The search must end. Hypothesis does not catch it."""


class Search:
    """Looks for a breach. `seconds` bound the search, `shrink_seconds` the shortening after it."""

    def __init__(self, client: CheckClient, seconds: float, shrink_seconds: float) -> None:
        self.breach: Breach | None = None
        self._client = client
        self._until = time.monotonic() + seconds
        self._shrink_seconds = shrink_seconds
        self._loop = asyncio.get_running_loop()

    async def run(self, seeds: Iterable[int], at_once: int) -> Breach | None:
        """Plays one history for each seed, `at_once` of them at the same time."""
        left = iter(seeds)
        try:
            await asyncio.gather(*(asyncio.to_thread(self._run, left) for _ in range(at_once)))
        finally:
            self._until = 0.0
        return self.breach

    def _run(self, seeds: Iterator[int]) -> None:
        try:
            for seed in seeds:
                self._play(seed)
        except OutOfTime:
            return
        except Exception:
            if self.breach is None:
                raise

    def _play(self, seed: int) -> None:
        draw = Random(seed)
        subjects = _chosen(draw, self._client.subjects)
        tools = [traits_of(subject) for subject in subjects]
        plan = Plan(draw, len(tools))

        @seeded(seed)
        @SETTINGS
        @given(st.data())
        def play(data: st.DataObject) -> None:
            model = Model(tools)
            player = Player(self._client, subjects, model.turn)

            def wait(asking: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
                if self._is_over(seed):
                    raise OutOfTime
                return self._wait(asking())

            history = History(player, model, wait)
            try:
                for request, numbers in plan.begin:
                    if any(data.draw(_BYTE)):
                        request(history, numbers)
                for _ in range(STEPS):
                    request, numbers = plan.step(data.draw(_STEP))
                    request(history, numbers)
                for request, numbers in plan.end:
                    if any(data.draw(_BYTE)):
                        request(history, numbers)
            except Broken as broken:
                self._found(Breach(seed, str(broken)))
                raise
            finally:
                self._wait(player.end())

        play()

    def _wait(self, asking: Coroutine[Any, Any, Value]) -> Value:
        """The result of a coroutine that runs on the check's loop."""
        return asyncio.run_coroutine_threadsafe(asking, self._loop).result()

    def _is_over(self, seed: int) -> bool:
        """Whether the time is over, or another seed has found a breach."""
        found = self.breach is not None and self.breach.seed != seed
        return found or time.monotonic() > self._until

    def _found(self, breach: Breach) -> None:
        """Keeps the shortest history. The first one sets the time for shortening."""
        if self.breach is None:
            self._until = time.monotonic() + self._shrink_seconds
        if self.breach is None or len(breach.history) < len(self.breach.history):
            self.breach = breach


def _chosen(draw: Random, subjects: Sequence[Subject]) -> list[Subject]:
    """The tools of a history: one with a visible effect if there is one, and perhaps others."""
    visible = [one for one in subjects if Kind.EFFECT in one.probe and Kind.READ in one.probe]
    first = draw.choice(visible or subjects)
    others = [subject for subject in subjects if subject is not first]
    more = min(len(others), draw.choice((0, 0, 1, MOST_TOOLS - 1)))
    return [first, *draw.sample(others, more)]
