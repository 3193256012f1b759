"""The ways of speaking of the search family: tags, prompt, correction of an invalid action.

`style` is one field of a recipe, which protocol and reward both read: a system's tags stand here
and nowhere else. What differs beside them is options of the reward. The texts are our own words,
none of them is the wording of a paper. Words in braces are replaced: {question}, and the tags
{think}, {search}, {documents}, {memory}, {answer}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from engine.api import Options
from toolwright.text.sections import sections

from .blocks import Tags

PROMPTS = sections(Path(__file__).with_name("prompts.txt"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """correction: "" = an invalid action ends the trajectory."""

    tags: Tags
    prompt: str
    correction: str = PROMPTS["correction"]


STYLES: Mapping[str, Style] = {
    "se_search": Style(tags=Tags(), prompt=PROMPTS["se_search"]),
    "search_r1": Style(tags=Tags(documents="information", memory=""), prompt=PROMPTS["search_r1"]),
    "auto_refine": Style(tags=Tags(memory="refine"), prompt=PROMPTS["auto_refine"]),
    "verltool": Style(
        tags=Tags(documents="information", memory=""), prompt=PROMPTS["search_r1"], correction=""
    ),
}


class Styled(Options):
    """Options that protocol and reward share."""

    style: Literal["se_search", "search_r1", "auto_refine", "verltool"] = "se_search"
    tags: Mapping[str, str] = {}
    """Words by role, in place of the style's."""

    @cached_property
    def chosen(self) -> Style:
        """The style with the recipe's words for its tags."""
        found = STYLES[self.style]
        return replace(found, tags=Tags(**{**found.tags.named(), **self.tags}))

    def model_post_init(self, context: object) -> None:
        _ = self.chosen  # refuses tags that do not fit
