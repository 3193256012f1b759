"""HTML pages that need nothing else, no network either: templates of this package, one style sheet.

Everything that is put into a page is escaped unless it is markup already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, content: Mapping[str, Any]) -> str:
    """`template`: its path below this package. UndefinedError for what `content` lacks."""
    environment = Environment(
        loader=PackageLoader("bench", "."),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**content)
