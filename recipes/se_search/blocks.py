"""Blocks in tags, `<search> ... </search>`, in what a policy wrote. Pure.

The tags of a search agent have five roles; which word stands for a role is a recipe's `Tags`.
Everything here takes time linear in the text, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pydantic import model_validator

from engine.api import Options

Role = Literal["think", "search", "documents", "memory", "answer"]

_WORD = re.compile(r"[A-Za-z][\w-]*")


class Tags(Options):
    """The word of each role."""

    think: str = "think"
    search: str = "search"
    documents: str = "documents"
    memory: str = "memory"
    """"" for an agent without such a block."""
    answer: str = "answer"

    @model_validator(mode="after")
    def _are_words(self) -> Tags:
        for role, word in self.words.items():
            if not _WORD.fullmatch(word) and (role != "memory" or word):
                raise ValueError(f"tags.{role} = {word!r}: write a word, without < and >")
        if len(set(self.words.values())) < len(self.words):
            raise ValueError(f"tags {self.named()}: each role needs a word of its own")
        return self

    @property
    def words(self) -> dict[Role, str]:
        """The word of each role, by role."""
        return self.model_dump()  # type: ignore[return-value]

    def named(self) -> dict[str, str]:
        """The words, to fill into texts of prompts."""
        return self.model_dump()


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What the environment acts on."""

    kind: Literal["search", "answer"]
    body: str

    @property
    def empty(self) -> bool:
        """A search for nothing, which is not made."""
        return self.kind == "search" and not self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An opening or a closing tag."""

    role: Role
    opens: bool


def action_of(text: str, tags: Tags) -> Action | None:
    """The first search or answer that is opened and closed in a text, wherever it stands; white
    space around its body is left out (AutoRefine: the first match of `<(a|b)>(.*?)</\\1>`)."""
    last = {word: text.rfind(f"</{word}>") for word in (tags.search, tags.answer)}
    for found in _openings(tags).finditer(text):
        word = found[1]
        if last[word] >= found.end():
            body = text[found.end() : text.find(f"</{word}>", found.end())].strip()
            return Action(kind="search" if word == tags.search else "answer", body=body)
    return None


def bodies(text: str, word: str) -> Iterator[str]:
    """What stands in each block of a tag, from left to right, white space around it left out. A
    block ends at the first closing tag; an open one does not count."""
    start = 0
    while (opened := text.find(f"<{word}>", start)) >= 0:
        begin = opened + len(word) + 2
        end = text.find(f"</{word}>", begin)
        if end < 0:
            return
        yield text[begin:end].strip()
        start = end + len(word) + 3


def marks(text: str, tags: Tags) -> Iterator[Mark]:
    """Every tag of the agent in a text, in order."""
    roles: dict[str, Role] = {word: role for role, word in tags.words.items() if word}
    for found in _any_tag(tags).finditer(text):
        yield Mark(role=roles[found[2]], opens=not found[1])


@lru_cache(maxsize=64)
def _openings(tags: Tags) -> re.Pattern[str]:
    return re.compile(f"<({re.escape(tags.search)}|{re.escape(tags.answer)})>")


@lru_cache(maxsize=64)
def _any_tag(tags: Tags) -> re.Pattern[str]:
    words = "|".join(re.escape(word) for word in tags.words.values() if word)
    return re.compile(f"<(/?)({words})>")
