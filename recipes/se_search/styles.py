"""The ways of speaking of the search family: tags, prompt, correction of an invalid action.

`style` is one field of a recipe, which protocol and reward both read: a system's tags stand here
and nowhere else. What differs beside them is options of the reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import prompts
from blocks import Tags, tags_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """correction: "" = an invalid action ends the trajectory."""

    tags: Tags
    prompt: str
    correction: str = prompts.CORRECTION


STYLES: Mapping[str, Style] = {
    "se_search": Style(tags=Tags(), prompt=prompts.SE_SEARCH),
    "search_r1": Style(tags=Tags(documents="information", memory=""), prompt=prompts.SEARCH_R1),
    "auto_refine": Style(tags=Tags(memory="refine"), prompt=prompts.AUTO_REFINE),
    "verltool": Style(
        tags=Tags(documents="information", memory=""), prompt=prompts.SEARCH_R1, correction=""
    ),
}


def style_of(name: str, tags: Mapping[str, str] | None = None) -> Style:
    """The style of a name, with the words of a recipe for its tags. ValueError for another name."""
    if name not in STYLES:
        raise ValueError(f"style = {name!r}: there are {', '.join(STYLES)}")
    found = STYLES[name]
    return Style(tags=tags_of(tags, found.tags), prompt=found.prompt, correction=found.correction)
