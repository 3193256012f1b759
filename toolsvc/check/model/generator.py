"""Histories of a seed: steps at random.

Each history has some kinds of steps often, others seldom or never, and one to four sessions: many
histories that differ much find more than many that are alike (swarm testing, Groce et al., 2012).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from toolsvc.check.model.model import Model
from toolsvc.check.model.steps import (
    OWNERS,
    SLOTS,
    Again,
    Burst,
    Call,
    Cancel,
    Change,
    Close,
    Deed,
    Fork,
    Late,
    List,
    Look,
    Open,
    Renew,
    Sleep,
    Step,
)

CANDIDATES = 100
"""Steps of a history, before those are left out that make no sense where they stand."""
MOST_AT_ONCE = 24
AUDITED = 6
"""Calls of a session that are asked for again at a history's end."""

_WEIGHTS: dict[type, int] = {
    Call: 36,
    Again: 24,
    Open: 8,
    Sleep: 6,
    Late: 3,
    Cancel: 8,
    Burst: 6,
    Renew: 6,
    Look: 6,
    Fork: 3,
    Close: 2,
    List: 1,
}
_LEANINGS = (0.0, 0.3, 1.0, 1.0, 3.0)
"""By which a history multiplies its weights."""


def history(seed: int, model: Model) -> Iterator[Step]:
    """Steps that make sense to the model, which follows them as they come; the same ones for the
    same seed and answers. At the end all that is left is looked at."""
    random = Random(seed)
    maker = _Maker(random, model, slots=random.choice((1, 2, 2, 3, SLOTS)))
    weights = [
        weight if kind is Call else random.choice(_LEANINGS) * weight
        for kind, weight in _WEIGHTS.items()
    ]
    kinds = random.choices(list(_WEIGHTS), weights=weights, k=CANDIDATES)
    yield Open(0, 0)
    yield Open(1, random.randrange(OWNERS))
    for kind in kinds:
        step = maker.make(kind)
        if model.allows(step):
            yield step
    yield from filter(model.allows, maker.audit())


class _Maker:
    """Steps at random; repetitions and cancellations are of calls that were made."""

    def __init__(self, random: Random, model: Model, slots: int) -> None:
        self._random = random
        self._model = model
        self._tools = model.tools
        self._slots = range(slots)
        self._label = 0
        self._refused: dict[int, int] = {}
        """The newest label of each slot that nothing ran under."""

    def make(self, kind: type) -> Step:
        random = self._random
        slot, tool = random.choice(self._slots), random.randrange(len(self._tools))
        if kind is Call:
            return self._call(slot, tool)
        if kind is Sleep:
            return Sleep(slot, self._new(), tool)
        if kind is Late:
            return Late(slot, self._new(), tool)
        if kind is Burst:
            return self._burst()
        if kind is Again:
            change = random.choice((Change.NONE, Change.NONE, Change.NONE, *Change))
            return Again(slot, self._known(slot), change)
        if kind is Cancel:
            return Cancel(slot, self._known(slot))
        if kind is Open:
            again = self._model.opening(slot) if random.random() < 0.5 else None
            return again or Open(slot, random.randrange(OWNERS), random.choice((0, 0, 0, 1)))
        if kind is Renew:
            believed = tuple(one for one in range(SLOTS) if random.random() < 0.7)
            return Renew(random.randrange(OWNERS), believed)
        if kind is Fork:
            return Fork(slot, random.randrange(SLOTS))
        return List() if kind is List else Look(slot) if kind is Look else Close(slot)

    def audit(self) -> Iterator[Step]:
        """What shows that something went wrong before."""
        yield from (Renew(owner, tuple(range(SLOTS))) for owner in range(OWNERS))
        for slot in range(SLOTS):
            yield from filter(None, [self._model.opening(slot)])
            yield Call(slot, self._new(), Deed.ANY, ahead=-1)
            yield Look(slot)
            yield from (Again(slot, label) for label in self._model.calls(slot)[-AUDITED:])
            yield Cancel(slot, self._known(slot))
            for tool in range(len(self._tools)):
                yield Call(slot, self._new(), Deed.READ, tool)

    def _new(self) -> int:
        self._label += 1
        return self._label

    def _known(self, slot: int) -> int:
        """A call that was made, or refused; a new one rather than an old one."""
        calls = self._model.calls(slot)
        if not calls or self._random.random() < 0.2:
            return self._label
        return calls[-1 - min(len(calls) - 1, int(self._random.expovariate(0.5)))]

    def _call(self, slot: int, tool: int) -> Call:
        random = self._random
        deeds = sorted(self._tools[tool].deeds)
        if Deed.EFFECT in deeds:
            deeds += [Deed.EFFECT, Deed.READ, Deed.READ]
        deed, ahead = random.choice([*deeds, Deed.UNKNOWN]), random.choice((-1, 0, 0, 0, 1, 2))
        # An id that was refused is free: it is tried again.
        tried = self._refused.pop(slot, None) if random.random() < 0.5 else None
        label = self._new() if tried is None else tried
        if ahead < 0 or deed is Deed.UNKNOWN:
            self._refused[slot] = label
        return Call(slot, label, deed, tool, ahead)

    def _burst(self) -> Burst:
        """Of one session or two; every call of a tool once in a while twice."""
        random = self._random
        slots = random.choices(self._slots, k=random.choice((1, 1, 2)))
        tools = random.choices(range(len(self._tools)), k=random.choice((1, 1, 2)))
        calls = []
        for _ in range(random.randrange(2, MOST_AT_ONCE)):
            slot, tool = random.choice(slots), random.choice(tools)
            deeds = sorted({Deed.EFFECT, Deed.ECHO, Deed.ANY} & self._tools[tool].deeds)
            call = Call(slot, self._new(), random.choice([*deeds, deeds[-1]]), tool)
            calls += [call] * random.choice((1, 1, 1, 2))
        random.shuffle(calls)
        return Burst(tuple(calls))
