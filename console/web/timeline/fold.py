"""Spans of trajectories to what a timeline shows: one state at a time, shares, load. Pure.

Invariants
- At each moment a trajectory does one thing: of what it does at once, the first of ORDER.
- Shares of one window add up to 1; time that no span explains is `rest`, the engine's own.
- Load counts an action once, also where branches of a trajectory share it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from console.web.index.types import Kind, Span, Times
from console.web.timeline.types import Bar, Doing, Load, Painted, Window

ORDER: tuple[Kind, ...] = ("generate", "tool", "queue", "wait", "open")
"""The policy that writes is not waiting for the call that runs meanwhile."""
AT_SAMPLER = ("wait", "generate")
AT_TOOL = ("queue", "tool")


def painted(times: Times) -> list[Painted]:
    """What it did from its beginning to its end, without gaps and overlaps, in seconds since it
    began."""
    edges: list[tuple[float, int, Kind]] = sorted(
        (at, change, span.kind)
        for span in times.spans
        for at, change in ((span.start, 1), (span.end, -1))
    )
    found: list[Painted] = []
    running: Counter[Kind] = Counter()
    before = 0.0
    for at, change, kind in edges:
        _paint(found, running, before, at)
        running[kind] += change
        before = max(before, at)
    _paint(found, running, before, times.length)
    return found


def shares(bars: Iterable[Bar], window: Window) -> dict[str, float]:
    """Shares of all seconds that trajectories spent in the window, by kind, the largest first."""
    spent: defaultdict[str, float] = defaultdict(float)
    for bar in bars:
        for kind, start, end in painted(bar.times):
            spent[kind] += _inside(window, bar.times.began + start, bar.times.began + end)
    whole = sum(spent.values())
    largest = sorted(spent.items(), key=lambda item: -item[1])
    return {kind: seconds / whole for kind, seconds in largest if seconds > 0}


def idle(bars: Iterable[Bar], window: Window) -> float:
    """The share of the window in which no trajectory was in flight."""
    covered, at = 0.0, window.start
    for began, ended in sorted((b.times.began, b.times.began + b.times.length) for b in bars):
        begin, end = max(began, at), min(ended, window.end)
        covered += max(end - begin, 0.0)
        at = max(at, end)
    return 1 - covered / window.length if window.length > 0 else 0.0


def load(bars: Iterable[Bar], window: Window, parts: int) -> Load:
    """The load of each of `parts` equal parts of the window."""
    width = window.length / parts
    requests, calls, tokens = [0.0] * parts, [0.0] * parts, [0.0] * parts
    for start, end, span in _distinct(bars):
        there = requests if span.kind in AT_SAMPLER else calls if span.kind in AT_TOOL else None
        if there is None:
            continue
        rate = span.tokens / (end - start) if span.kind == "generate" else 0.0
        first, last = (int((at - window.start) / width) for at in (start, end))
        for part in range(max(first, 0), min(last, parts - 1) + 1):
            begin = window.start + part * width
            share = (min(end, begin + width) - max(start, begin)) / width
            there[part] += max(share, 0.0)
            tokens[part] += max(share, 0.0) * rate
    return Load(requests=tuple(requests), calls=tuple(calls), tokens=tuple(tokens))


def _distinct(bars: Iterable[Bar]) -> list[tuple[float, float, Span]]:
    """Spans in unix seconds, those that branches share once: to a millisecond they are the same."""
    found: dict[tuple[str, int, int, int], tuple[float, float, Span]] = {}
    for bar in bars:
        family = bar.name.rpartition("-")[0]
        for place, span in enumerate(bar.times.spans):
            start, end = bar.times.began + span.start, bar.times.began + span.end
            shared = (family, place, round(start * 1e3), round(end * 1e3))
            found.setdefault(shared, (start, end, span))
    return list(found.values())


def _paint(found: list[Painted], running: Counter[Kind], start: float, end: float) -> None:
    if end <= start:
        return
    kind: Doing = next((one for one in ORDER if running[one] > 0), "rest")
    if found and found[-1][0] == kind:
        start = found.pop()[1]
    found.append((kind, start, end))


def _inside(window: Window, start: float, end: float) -> float:
    return max(min(end, window.end) - max(start, window.start), 0.0)


def lanes(spans: Sequence[tuple[float, float]]) -> list[int]:
    """A lane for each span, in the order of their beginnings: the first free one, so that no span
    covers another."""
    ends: list[float] = []
    found = []
    for start, end in spans:
        lane = next((number for number, free in enumerate(ends) if free <= start), len(ends))
        if lane == len(ends):
            ends.append(end)
        ends[lane] = end
        found.append(lane)
    return found
