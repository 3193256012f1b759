"""Pages of the viewer as single files: reports, comparisons, ladders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from toolwright.page import SHARED_STYLE
from toolwright.page.still import still

PAGES = Path(__file__).parent / "pages"
ENTRY = PAGES / "still/still.js"
STYLES = (
    SHARED_STYLE,
    *(PAGES / name for name in ("style.css", "measures/measures.css", "still/still.css")),
)


def file_of(kind: Literal["report", "comparison", "ladder"], title: str, data: Any) -> str:
    """The page of `data`, the figures of its kind. Raises ValueError for an infinite number."""
    told: Mapping[str, Any] = {"kind": kind, "data": data}
    return still(ENTRY, STYLES, title=title, data=told)
