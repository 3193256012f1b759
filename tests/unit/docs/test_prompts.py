"""docs/train/prompts.md has every option of both protocols with its default."""

from __future__ import annotations

import inspect
import json
import re

import pytest

from engine.core.protocols.chat import Chat
from engine.core.protocols.tagged import Tagged
from tests.support.docs import DOCS

pytestmark = pytest.mark.quick

PAGE = (DOCS / "train" / "prompts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("protocol", [Tagged, Chat])
def test_the_page_has_every_option_with_its_default(protocol: type[object]) -> None:
    section = PAGE.partition(f"\n## {protocol.__name__}\n")[2].partition("\n## ")[0]
    shown: dict[str, object] = {}
    for row in re.findall(r"^\| `.*", section, re.MULTILINE):
        names, values = (re.findall(r"`([^`]*)`", cell) for cell in row.split(" | ")[:2])
        shown |= dict(zip(names, map(json.loads, values), strict=True))
    options = inspect.signature(protocol).parameters
    assert shown == {name: parameter.default for name, parameter in options.items()}
