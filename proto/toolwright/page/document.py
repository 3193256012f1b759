"""A page of blocks as one file: facts, tables, charts, lists. `document.js` draws the blocks.

Words of strangers may stand in every text: it becomes text of the page, never markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolwright.page.plot import Plot
from toolwright.page.still import still

Block = dict[str, Any]
Cell = str | int | Mapping[str, str]
"""A text, a number, or {"code" or "bold": a text}."""


def document(title: str, blocks: Iterable[Block | None]) -> str:
    """The file. title: also the heading of the page. None stands for a block that has nothing."""
    data = {"title": title, "blocks": [one for one in blocks if one is not None]}
    return still("document.js", title=title, data=data)


def heading(text: str, *, level: int = 2) -> Block:
    """A heading before the blocks that follow."""
    return {"kind": "heading", "text": text, "level": level}


def note(text: str) -> Block:
    """A sentence in a soft colour."""
    return {"kind": "note", "text": text}


def listed(lines: Iterable[str], *, fault: bool = False) -> Block | None:
    """A list; None without lines. fault: its lines are warnings."""
    found = list(lines)
    return {"kind": "list", "lines": found, "fault": fault} if found else None


def facts(pairs: Iterable[tuple[str, str]]) -> Block | None:
    """Names with their values, large; None without any."""
    found = [list(pair) for pair in pairs]
    return {"kind": "facts", "facts": found} if found else None


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Block | None:
    """None without rows."""
    found = [list(row) for row in rows]
    return {"kind": "table", "heads": list(heads), "rows": found} if found else None


def charts(plots: Iterable[Plot | None], *, title: str = "", text: str = "") -> Block | None:
    """Plots beside each other, with a heading and a sentence; None without plots."""
    found = [one for one in plots if one is not None]
    return {"kind": "charts", "title": title, "note": text, "plots": found} if found else None


def bar(title: str, parts: Iterable[tuple[str, float, str]]) -> Block | None:
    """Shares of a whole: name, value and the text of the value; None without parts."""
    found = [{"name": name, "value": value, "text": text} for name, value, text in parts]
    return {"kind": "bar", "title": title, "parts": found} if found else None


def folded(title: str, lines: Iterable[str]) -> Block:
    """Lines that a click shows."""
    return {"kind": "folded", "title": title, "text": "\n".join(lines)}


def trajectory(
    name: str, segments: Iterable[tuple[str, str]], verdict: str, *, good: bool | None = None
) -> Block:
    """What policy and tools wrote: (author, text) each."""
    return {"kind": "trajectory", "question": name, "segments": [list(one) for one in segments]} | {
        "verdict": verdict,
        "good": good,
    }
