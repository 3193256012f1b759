"""Which words of a tool are embedded, searched and compared.

SEARL embeds the description (appendix E.1) or compares name and description (section 3.3). A memory
keeps its first choice, beside the name of its embedder: vectors of both kinds in one graph must not
be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memory.types import TextOf, Tool


def _with_name(tool: Tool) -> str:
    return f"{tool.name.replace('_', ' ').strip()}: {tool.description}"


TEXTS: Mapping[TextOf, Callable[[Tool], str]] = {
    "description": lambda tool: tool.description,
    "name and description": _with_name,
}
_BETWEEN = ", text_of = "


def joined(embedder: str, text_of: TextOf) -> str:
    """Name of both choices in a store; the embedder's name alone if the description is embedded."""
    return embedder if text_of == "description" else f"{embedder}{_BETWEEN}{text_of}"


def parted(kept: str) -> tuple[str, TextOf]:
    """Inverse of `joined`."""
    for text_of in TEXTS:
        if kept.endswith(f"{_BETWEEN}{text_of}"):
            return kept.removesuffix(f"{_BETWEEN}{text_of}"), text_of
    return kept, "description"
