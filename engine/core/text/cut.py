"""Pure functions on text and token ids: stops, truncation, assembly."""

from __future__ import annotations

from collections.abc import Sequence

from toolwright.text.truncation import Keep, cut


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
    """The tokens cut to at most `limit`, marker included (`verltool.truncate_observation`)."""
    found = cut(len(tokens), limit=limit, marker=len(marker), keep=keep)
    if found is None:
        return list(tokens)
    between = marker if found.marked else ()
    return [*tokens[: found.front], *between, *tokens[len(tokens) - found.back :]]
