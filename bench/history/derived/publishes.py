"""The order in which versions were handed over, and which one was the newest at a time."""

from __future__ import annotations

from bisect import bisect_left

from bench.history.events import Loaded, Published, Publishing, Sampled
from toolwright.types import WeightVersion


class Publishes:
    """Call `see` with every event of its kinds, in order.

    A server may have a version while its publish goes on, so a version is known from `Publishing`
    on. The first policy is what servers load, or run, before anything is published.
    """

    def __init__(self) -> None:
        self._order: dict[WeightVersion, int] = {}
        self._answered: list[float] = []
        self._newest: list[int] = []
        self._began = False
        self.calls = False
        """The observer writes `Publishing`."""

    def see(self, event: Loaded | Sampled | Publishing | Published) -> None:
        """Learns versions and when each was published."""
        match event:
            case Loaded():
                if not self._began:
                    self._order.setdefault(event.version, 0)
            case Sampled():
                if not self._order:
                    self._order[event.version] = 0
                self._began = True
            case Publishing():
                self.calls = self._began = True
                self._enter(event.version)
            case Published():
                self._began = True
                self._enter(event.version)
                place = self._order[event.version]
                self._answered.append(event.at)
                self._newest.append(max([place, *self._newest[-1:]]))

    def knows(self, version: WeightVersion) -> bool:
        """The version is the first policy, or was handed over."""
        return version in self._order

    def is_later(self, version: WeightVersion, than: WeightVersion) -> bool:
        """Both are known, and `version` was handed over after `than`."""
        places = self._order.get(version), self._order.get(than)
        return places[0] is not None and places[1] is not None and places[0] > places[1]

    def is_newest(self, version: WeightVersion) -> bool:
        """No known version was handed over after this one."""
        return not any(self.is_later(other, version) for other in self._order)

    def is_behind(self, version: WeightVersion, began: float) -> bool:
        """A later version than this one had been published before a time."""
        before = bisect_left(self._answered, began)
        place = self._order.get(version)
        return before > 0 and place is not None and place < self._newest[before - 1]

    def _enter(self, version: WeightVersion) -> None:
        self._order.setdefault(version, len(self._order) + 1)
