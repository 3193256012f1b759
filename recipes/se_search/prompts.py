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
from typing import Literal

from engine.api import Options

from .blocks import Tags, tags_of

SE_SEARCH = """\
You answer questions, and you can look things up. Reason between <{think}> and </{think}>. Where \
your knowledge does not reach, write a search query between <{search}> and </{search}>: the three \
passages that match best come back between <{documents}> and </{documents}>. After each search, \
write between <{memory}> and </{memory}> the facts in them that help, and add to or mend what you \
noted before. You may search several times; never ask the same twice, and ask one thing at a \
time. Once you know enough, write the answer alone, as short as it can be, between <{answer}> \
and </{answer}>, for example <{answer}> Lake Geneva </{answer}>.

Question: {question}
"""

SEARCH_R1 = """\
Answer the question below. Whenever you learn something new, first reason about it between \
<{think}> and </{think}>. If you lack knowledge, write a query between <{search}> and \
</{search}>; the best results are given to you between <{documents}> and </{documents}>. Search as \
often as you want. When nothing is missing any more, give the answer between <{answer}> and \
</{answer}>, without explanations, for example <{answer}> Lake Geneva </{answer}>.

Question: {question}
"""

AUTO_REFINE = """\
You answer questions with the help of a search engine. Reason between <{think}> and </{think}>. If \
a fact is missing, write a query between <{search}> and </{search}>; passages come back between \
<{documents}> and </{documents}>. Then write between <{memory}> and </{memory}> what matters in \
them. Repeat this as often as it takes. Give the final answer, short and without explanations, \
between <{answer}> and </{answer}>, for example <{answer}> Lake Geneva </{answer}>.

Question: {question}
"""

CORRECTION = """\
That was no action. To look something up, write the query between <{search}> and </{search}>. To \
answer, write the answer between <{answer}> and </{answer}>. Try again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """correction: "" = an invalid action ends the trajectory."""

    tags: Tags
    prompt: str
    correction: str = CORRECTION


STYLES: Mapping[str, Style] = {
    "se_search": Style(tags=Tags(), prompt=SE_SEARCH),
    "search_r1": Style(tags=Tags(documents="information", memory=""), prompt=SEARCH_R1),
    "auto_refine": Style(tags=Tags(memory="refine"), prompt=AUTO_REFINE),
    "verltool": Style(
        tags=Tags(documents="information", memory=""), prompt=SEARCH_R1, correction=""
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
        return replace(found, tags=tags_of(self.tags, found.tags))

    def model_post_init(self, context: object) -> None:
        _ = self.chosen  # refuses tags that do not fit
