"""Counts the calls of recordings. Pure.

Invariants
- Memory grows with the number of different tools and words, not of invocations; both have a bound.
- The same invocations in any order give the same counts, unless a bound was reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.offline.analyze.schema import Size, complexity, identity
from engine.offline.analyze.words import Vocabulary, words_of
from engine.serving.evaluation.rates import Rates

MOST_TOOLS = 1_000_000
"""Most different tools, about 300 bytes each; calls of further ones are counted together."""
MOST_WORDS = 100_000
"""Words that are kept, the most frequent ones, once there are twice as many."""
LONGEST_NAME = 120
"""Longest name that is kept for display, in characters."""


@dataclass(slots=True, kw_only=True)
class CountedTool:
    """A tool and its number of calls. domain, function: positions in the vocabulary's names."""

    name: str
    domain: int
    function: int
    size: Size
    count: int = 0


class ToolTally:
    """Counts over any number of recordings."""

    def __init__(
        self, vocabulary: Vocabulary, *, most_tools: int = MOST_TOOLS, most_words: int = MOST_WORDS
    ) -> None:
        self.vocabulary = vocabulary
        self.rates = Rates()
        self.trajectories = 0
        self.invocations = 0
        """Calls that name a tool."""
        self.nameless = 0
        """Calls without a tool's name: the action could not be read."""
        self.beyond = 0
        """Invocations of tools beyond the bound."""
        self.words: Counter[str] = Counter()
        """Number of tools with a word in their name or description."""
        self.rare_words_dropped = False
        """The bound of words was reached: rare ones are missing or counted too low."""
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
        """Counts invocations of one tool. schema: None if it is not recorded."""
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
            tool = self._tools[key] = self._counted(name, description, schema)
        tool.count += times

    def _counted(
        self, name: str, description: str, schema: Mapping[str, Any] | None
    ) -> CountedTool:
        named, described = words_of(name), words_of(description)
        self.words.update(self.vocabulary.counted_words([*named, *described]))
        if len(self.words) > 2 * self._most_words:
            self.rare_words_dropped = True
            self.words = Counter(dict(self.words.most_common(self._most_words)))
        return CountedTool(
            name=name[:LONGEST_NAME],
            domain=self.vocabulary.domains.of(named, described),
            function=self.vocabulary.functions.of(named, described),
            size=Size.UNKNOWN if schema is None else complexity(schema).size,
        )
