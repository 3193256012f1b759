"""Examples of the docs, as the code that they are."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def example(page: str, words: str, language: str = "python") -> str:
    """The block of a page, of a language, whose first line holds the words."""
    blocks = (DOCS / page).read_text(encoding="utf-8").split(f"```{language}\n")[1:]
    texts = (block.partition("```")[0] for block in blocks)
    return next(text for text in texts if words in text.partition("\n")[0])
