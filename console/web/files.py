"""Pages of the viewer as single files: reports, comparisons, ladders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from toolwright.page.still import still

PAGES = Path(__file__).parent / "pages"


def file_of(kind: Literal["report", "comparison", "ladder"], title: str, data: Any) -> str:
    """The page of `data`, the figures of its kind. Raises ValueError for an infinite number."""
    told = {"kind": kind, "data": data}
    return still("still/still.js", title=title, data=told, pages=PAGES)
