"""Counts what recordings called, one invocation at a time. Pure.

Invariants
- What is held grows with the number of different tools and of different words, never with that of
  invocations; both have a bound.
- The same invocations in any order give the same counts, where neither bound was met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.offline.analyze.schema import Size, complexity, identity
from engine.offline.analyze.words import Vocabulary, words_of

MOST_TOOLS = 1_000_000
"""Different tools, some 300 bytes each; invocations of later ones are counted together."""
MOST_WORDS = 100_000
"""Words that stay where twice as many were met: the most frequent ones."""
LONGEST_NAME = 120
"""Characters of a tool's name that are kept to be shown."""


@dataclass(slots=True, kw_only=True)
class CountedTool:
    """domain, function: places among the vocabulary's names."""

    name: str
    domain: int
    function: int
    size: Size
    count: int = 0


class Tally:
    """Of any number of recordings."""

    def __init__(
        self, vocabulary: Vocabulary, *, most_tools: int = MOST_TOOLS, most_words: int = MOST_WORDS
    ) -> None:
        self.vocabulary = vocabulary
        self.trajectories = 0
        self.invocations = 0
        """Calls that name a tool."""
        self.nameless = 0
        """Calls that name none: nothing could be read from the action."""
        self.beyond = 0
        """Invocations of tools beyond the bound."""
        self.words: Counter[str] = Counter()
        """In how many tools' names and descriptions a word is found."""
        self.rare_words_dropped = False
        """The bound of words was met: rare ones are missing, or counted too low."""
        self._tools: dict[bytes, CountedTool] = {}
        self._most_tools = most_tools
        self._most_words = most_words

    @property
    def tools(self) -> list[CountedTool]:
        """The most called first, then by name."""
        return sorted(self._tools.values(), key=lambda tool: (-tool.count, tool.name))

    def add(
        self, name: str, description: str, schema: Mapping[str, Any] | None, times: int = 1
    ) -> None:
        """Invocations of one tool. schema: None where it is not recorded."""
        if not name:
            self.nameless += times
            return
        self.invocations += times
        key = identity(name, schema)
        tool = self._tools.get(key)
        if tool is None:
            if len(self._tools) >= self._most_tools:
                self.beyond += times
                return
            tool = self._tools[key] = self._met(name, description, schema)
        tool.count += times

    def _met(self, name: str, description: str, schema: Mapping[str, Any] | None) -> CountedTool:
        named, described = words_of(name), words_of(description)
        self.words.update(self.vocabulary.telling([*named, *described]))
        if len(self.words) > 2 * self._most_words:
            self.rare_words_dropped = True
            self.words = Counter(dict(self.words.most_common(self._most_words)))
        return CountedTool(
            name=name[:LONGEST_NAME],
            domain=self.vocabulary.domains.of(named, described),
            function=self.vocabulary.functions.of(named, described),
            size=Size.UNKNOWN if schema is None else complexity(schema).size,
        )
