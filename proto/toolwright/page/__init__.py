"""Pages of HTML and their charts: one style, nothing fetched from anywhere."""

from __future__ import annotations

from pathlib import Path

SHARED_STYLE = Path(__file__).parent / "web/colours.css"
"""Style sheet with the colours of all pages."""
