"""Port 0 in a recipe. `toolwright run` alone can choose a free port for all processes of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwright.recipe.assignments import assignments
from toolwright.recipe.models.shared_tables import Shared
from toolwright.recipe.reading import Recipe, RecipeError

OPEN_URL = re.compile(r"(https?://(?:127\.0\.0\.1|localhost|\[::1\]):)0+(?=/|$)")
"""URL in `tools.NAME.serve` or an option there, such as that of a model that plays the tool."""


def refuse_open_ports(recipe: Recipe, *tables: str) -> None:
    """Raises RecipeError for an address with port 0. tables: names of some; without them, all."""
    for key, sentence in open_ports(recipe.shared):
        if not tables or key.partition(".")[0] in tables:
            raise RecipeError(sentence)


def open_ports(shared: Shared) -> Iterator[tuple[str, str]]:
    """(key, sentence) of each address with port 0."""
    for key, address in _addresses(shared):
        if is_open(address) or (key.startswith("tools.") and OPEN_URL.search(address)):
            example = "'[\"http://HOST:PORT\"]'" if key == "sampler.endpoints" else "..."
            yield (
                key,
                f"{key} = {address!r} is any free port, which `toolwright run` chooses for all "
                f"processes of a run: start the run with it, or name a port "
                f"(--set {key}={example})",
            )


def is_open(address: str) -> bool:
    """Whether the address has port 0."""
    return re.search(r":0+/?$", address) is not None


def _addresses(shared: Shared) -> Iterator[tuple[str, str]]:
    yield "run.engine", shared.run.engine
    yield from (("sampler.endpoints", url) for url in shared.sampler.endpoints)
    for name in shared.used_tools:
        yield f"tools.{name}.service", shared.tools[name].service
        yield from ((f"tools.{name}.serve", word) for word in shared.tools[name].serve)
        options = assignments(shared.tools[name].options)
        yield from ((f"tools.{name}.options.{key}", text) for key, text in options)
