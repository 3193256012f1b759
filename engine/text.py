"""Pure functions on text and token ids: stops, truncation, assembly (spec 3.2-3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Keep = Literal["head", "middle", "tail"]


def stop_cut(text: str, stops: Sequence[str]) -> tuple[str, str | None, str]:
    """(text up to and including the stop, the stop, the rest); `verltool.stop_cut`.

    The stop whose end comes first wins, at an equal end the longer one. Linear in the text for
    each stop.
    """
    best: tuple[int, int, str] | None = None
    for stop in stops:
        start = text.find(stop)
        if start >= 0:
            found = (start + len(stop), -len(stop), stop)
            if best is None or found < best:
                best = found
    if best is None:
        return text, None, ""
    end, _, stop = best
    return text[:end], stop, text[end:]


def truncate_observation(
    tokens: Sequence[int], *, limit: int, marker: Sequence[int], keep: Keep
) -> list[int]:
    """At most `limit` tokens, marker included (`verltool.truncate_observation`).

    keep = head: the first limit - |marker|, then the marker; tail: the marker, then the last;
    middle: the ceil half, the marker, the floor half. A marker above the limit is left out.
    """
    if len(tokens) <= limit:
        return list(tokens)
    room = limit - len(marker)
    if room < 0:
        return list(tokens[-limit:] if keep == "tail" and limit else tokens[:limit])
    if keep == "head":
        return [*tokens[:room], *marker]
    if keep == "tail":
        return [*marker, *tokens[len(tokens) - room :]]
    front, back = (room + 1) // 2, room // 2
    return [*tokens[:front], *marker, *tokens[len(tokens) - back :]]
