"""What a study is: runs, a measurement of them, a table and a picture. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
"""What a study measured, as its file has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One question and the way to its answer."""

    name: str
    """Name of its file, its picture and its page."""
    question: str
    recipe: str
    """Recipe of its runs, below recipes/; "" for a study without training."""
    settings: Sequence[str]
    """Overrides of the recipe, TABLE.KEY=VALUE."""
    measure: Callable[[Mapping[int, Path]], Figures]
    """Figures of finished runs, which are run folders by seed; without training, of the study's
    own folder under 0."""
    table: Callable[[Figures], str]
    """The table of its page, as Markdown."""
    picture: Callable[[Figures], str]
    """The picture of its page, as SVG."""
