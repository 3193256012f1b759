"""Detects the collapse of a policy: a sign in its figures together with a fallen reward. Pure.

The learner ends a run by it, and the console judges by it. Invariants
- A sign alone is not a collapse: a policy that solves its tasks also has an entropy near 0.
- A collapse is STREAK steps in a row, each with a sign and a reward below half of the best.
- Steps are compared with the window of WINDOW steps that has the highest mean reward.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

STREAK = 3
WINDOW = 5
FALLEN = 0.5
"""Share of the best reward's size that must be lost."""
NO_ENTROPY, SOME_ENTROPY = 0.02, 0.1
"""Entropy near 0, and least entropy at the best, in nats a token."""
NO_CALLS, SOME_CALLS = 0.1, 0.3
"""Share of the calls that are left, and least calls a trajectory at the best."""
ALL_CUT, FEW_CUT = 0.9, 0.5
"""Least share of trajectories that a limit ends now, and largest share at the best."""
JUMP, LEAST_KL = 10.0, 1.0
"""Least factor over the KL of the best window, and least KL in nats a token."""
SMALL_KL = 0.01
_KL = ("kl_reference", "kl_rollout_k3")
_READ = ("reward", "entropy", "calls", "truncated_fraction", *_KL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapsed:
    """A collapse."""

    step: int
    """First step of the streak."""
    rate: float | None
    """Learning rate at that step; None if unknown."""
    signs: tuple[str, ...]
    """The signs at the last step, each a phrase."""

    @property
    def sentence(self) -> str:
        rate = "unknown" if self.rate is None else f"{self.rate:g}"
        return f"collapsed at update {self.step}, lr is {rate}: {', '.join(self.signs)}"


class CollapseWatch:
    """Watches the steps of one run, given in order."""

    def __init__(self) -> None:
        self._window: deque[Mapping[str, float]] = deque(maxlen=WINDOW)
        self._best: dict[str, float] = {}
        """Means of the best window; empty before the first full window."""
        self._since: tuple[int, float | None] | None = None
        self._count = 0

    def remember(self, steps: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Takes steps of an earlier life. They count for the best window and begin no streak."""
        for step, values in steps:
            self.add(step, values)
        self._count, self._since = 0, None

    def add(self, step: int, values: Mapping[str, float]) -> Collapsed | None:
        """The collapse that this step belongs to; None without one.

        values: the step's finite figures by metric name.
        """
        signs = self._signs(values)
        if not signs:
            self._count, self._since = 0, None
            self._window.append({name: values[name] for name in _READ if name in values})
            self._remember_best()
            return None
        if self._since is None:
            self._since = step, values.get("learning_rate")
        self._count += 1
        if self._count < STREAK:
            return None
        return Collapsed(step=self._since[0], rate=self._since[1], signs=signs)

    def _remember_best(self) -> None:
        rewards = [one["reward"] for one in self._window if "reward" in one]
        if len(rewards) < WINDOW:
            return
        mean = fmean(rewards)
        if not self._best or mean > self._best["reward"]:
            self._best = {
                name: fmean(found)
                for name in _READ
                if (found := [one[name] for one in self._window if name in one])
            }

    def _signs(self, values: Mapping[str, float]) -> tuple[str, ...]:
        """Signs of a collapse; empty unless the reward has fallen."""
        best = self._best
        if not best:
            return ()
        reward = values.get("reward")
        if reward is not None and best["reward"] - reward <= FALLEN * abs(best["reward"]):
            return ()
        found = []
        entropy, calls = values.get("entropy"), values.get("calls")
        cut = values.get("truncated_fraction")
        if entropy is not None and entropy < NO_ENTROPY and best.get("entropy", 0) >= SOME_ENTROPY:
            found.append(f"entropy fell from {best['entropy']:.2g} to {entropy:.2g}")
        had = best.get("calls", 0.0)
        if calls is not None and had >= SOME_CALLS and calls <= NO_CALLS * had:
            found.append(f"calls a trajectory fell from {had:.2g} to {calls:.2g}")
        if cut is not None and cut >= ALL_CUT and best.get("truncated_fraction", 0.0) <= FEW_CUT:
            found.append(f"{cut:.0%} of the trajectories end at a limit")
        for name in _KL:
            now, before = values.get(name, 0.0), best.get(name, 0.0)
            if now > LEAST_KL and now > JUMP * max(before, SMALL_KL):
                found.append(f"{name} rose from {before:.2g} to {now:.2g}")
        if found:
            fell = "is gone" if reward is None else f"fell to {reward:.3g}"
            found.append(f"the reward, {best['reward']:.3g} at best, {fell}")
        return tuple(found)


def collapse_of(steps: Iterable[tuple[int, Mapping[str, float]]]) -> Collapsed | None:
    """The collapse that the last step belongs to; None without one."""
    watch, found = CollapseWatch(), None
    for step, values in steps:
        found = watch.add(step, values)
    return found
