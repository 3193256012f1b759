"""HTML pages that need no other file and no network: templates of a package, one style sheet.

Every value in a page is escaped unless it is markup already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def render(package: str, template: str, content: Mapping[str, Any]) -> str:
    """`template`: its path below `package`; it may include `style.css.jinja`, which lies here.
    Raises UndefinedError if `content` lacks a name."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("toolwright", "page")]),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**content)
